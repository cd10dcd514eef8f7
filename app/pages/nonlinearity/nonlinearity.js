// The Non-linearity page between two questions to the server: draw a function, slide η, pick an input.
(function () {
    "use strict";
    const { setProps } = aotlens;

    window.dashMantineFunctions = Object.assign({}, window.dashMantineFunctions, {
        tenToThe: (value) => Number((10 ** value).toPrecision(3)).toString(),
        plain: (value) => Number(value.toPrecision(4)).toString().replace("-", "−"),
    });

    // ── drawing ─────────────────────────────────────────────────────────────────────────────────────────────

    const WIDTH = 560, HEIGHT = 250, MARGIN = 26;
    const drawing = { points: [], bound: 2, low: -1, high: 1, held: null };

    function read(text) {
        const points = [];
        for (const line of String(text || "").replace(/−/g, "-").split(/[\n;]/)) {
            const parts = line.split(",").map((part) => part.trim() === "" ? NaN : Number(part));
            if (parts.length === 2 && parts.every(Number.isFinite)) points.push(parts);
        }
        return points;
    }

    const short = (value) => Number(value.toFixed(3)).toString();
    const step = () => drawing.bound / 40;
    const toX = (x) => MARGIN + (x + drawing.bound) / (2 * drawing.bound) * (WIDTH - 2 * MARGIN);
    const toY = (y) => MARGIN + (drawing.high - y) / (drawing.high - drawing.low) * (HEIGHT - 2 * MARGIN);

    function fromEvent(event, svg) {
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        const x = (at.x - MARGIN) / (WIDTH - 2 * MARGIN) * 2 * drawing.bound - drawing.bound;
        const y = drawing.high - (at.y - MARGIN) / (HEIGHT - 2 * MARGIN) * (drawing.high - drawing.low);
        return [clip(snap(x, drawing.bound / 100)), snap(y, (drawing.high - drawing.low) / 200)];
    }

    const snap = (value, unit) => Math.round(value / unit) * unit;
    const clip = (x) => Math.min(Math.max(x, -drawing.bound), drawing.bound);

    function element(name, attributes, text) {
        const made = document.createElementNS("http://www.w3.org/2000/svg", name);
        for (const key of Object.keys(attributes)) made.setAttribute(key, attributes[key]);
        if (text !== undefined) made.textContent = text;
        return made;
    }

    function frame() {
        const ys = drawing.points.map((point) => point[1]);
        const low = Math.min(-1, ...ys), high = Math.max(1, ...ys);
        drawing.low = low - 0.15 * (high - low);
        drawing.high = high + 0.15 * (high - low);
    }

    // The points from left to right, and flat beyond them to both ends.
    function outline() {
        const sorted = drawing.points.slice().sort((a, b) => a[0] - b[0]), ends = [sorted[0]?.[1] ?? 0, sorted.at(-1)?.[1] ?? 0];
        return [[-drawing.bound, ends[0]], ...sorted, [drawing.bound, ends[1]]];
    }

    function paint(focused) {
        const box = document.getElementById("nonlinearity-editor");
        if (!box) return;
        const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "data-bound": drawing.bound });
        const { bound, low, high } = drawing;
        const add = (type, attributes, text) => svg.append(element(type, attributes, text));
        add("line", { class: "axis", x1: toX(-bound), x2: toX(bound), y1: toY(0), y2: toY(0) });
        add("line", { class: "axis", x1: toX(0), x2: toX(0), y1: 0, y2: HEIGHT });
        add("text", { class: "label", x: toX(-bound), y: HEIGHT - 6 }, "−" + short(bound));
        add("text", { class: "label", x: toX(bound), y: HEIGHT - 6, "text-anchor": "end" }, short(bound));
        add("text", { class: "label", x: 4, y: toY(high) - 10 }, short(high));
        add("text", { class: "label", x: 4, y: toY(low) + 4 }, short(low));
        if (drawing.points.length) {
            add("polyline", { class: "curve", points: outline().map(([x, y]) => `${toX(clip(x))},${toY(y)}`).join(" ") });
        }
        drawing.points.forEach(function (point, index) {
            const knot = element("circle", {
                class: "knot", cx: toX(point[0]), cy: toY(point[1]), r: 7, tabindex: 0, role: "button", "data-index": index,
                "aria-label": `Point ${index + 1} of ${drawing.points.length}: x ${short(point[0])}, y ${short(point[1])}. `
                    + "Arrow keys move it, Delete removes it.",
            });
            knot.append(element("title", {}, `${short(point[0])}, ${short(point[1])}`));
            svg.append(knot);
        });
        box.replaceChildren(svg);
        if (focused !== undefined) {
            const knot = box.querySelector(`[data-index="${focused}"]`);
            if (knot) knot.focus();
        }
    }

    function commit(focused) {
        frame();
        paint(focused);
        const text = drawing.points.map((point) => `${short(point[0])}, ${short(point[1])}`).join("\n");
        setProps("nonlinearity-knots", { value: text });
    }

    // What stands in the box, not what Dash was last told: whoever types and draws at once means both.
    document.addEventListener("focusout", function ({ target }) {
        if (target.id !== "nonlinearity-knots") return;
        drawing.points = read(target.value);
        frame();
    });

    function draw(text, bound) {
        const reach = Number(String(bound).replace("−", "-"));
        drawing.bound = Number.isFinite(reach) && reach > 0 ? reach : 2;
        if (drawing.held !== null) return;
        const points = read(text), said = (all) => JSON.stringify(all.map((point) => point.map(short)));
        // What is drawn already keeps its focus.
        const there = document.querySelector("#nonlinearity-editor svg");
        if (there && Number(there.dataset.bound) === drawing.bound && said(points) === said(drawing.points)) return;
        drawing.points = points;
        frame();
        paint();
    }

    // In the middle of the widest gap, on the line that is there.
    function addPoint() {
        const ends = outline();
        const gaps = ends.slice(1).map((point, index) => point[0] - ends[index][0]), widest = gaps.indexOf(Math.max(...gaps));
        drawing.points.push([0, 1].map((axis) => (ends[widest][axis] + ends[widest + 1][axis]) / 2));
        commit(drawing.points.length - 1);
    }

    const knotOf = (target) => target instanceof Element ? target.closest("#nonlinearity-editor .knot") : null;

    document.addEventListener("pointerdown", function (event) {
        const svg = event.target instanceof Element && event.target.closest("#nonlinearity-editor svg");
        if (!svg || event.button !== 0) return;
        event.preventDefault(); // which keeps the focus where it is: a box that is typed in would go on to wait
        if (document.activeElement.id === "nonlinearity-knots") document.activeElement.blur();
        const knot = knotOf(event.target);
        if (knot) {
            drawing.held = Number(knot.dataset.index);
            knot.focus();
        } else {
            drawing.points.push(fromEvent(event, svg));
            drawing.held = drawing.points.length - 1;
            paint(drawing.held);
        }
    });

    document.addEventListener("pointermove", function (event) {
        if (drawing.held === null) return;
        const svg = document.querySelector("#nonlinearity-editor svg");
        if (!svg) return;
        drawing.points[drawing.held] = fromEvent(event, svg);
        paint(drawing.held);
    });

    document.addEventListener("pointerup", function () {
        if (drawing.held === null) return;
        const held = drawing.held;
        drawing.held = null;
        commit(held);
    });

    document.addEventListener("keydown", function (event) {
        const knot = knotOf(event.target);
        if (!knot) return;
        const index = Number(knot.dataset.index);
        const far = event.shiftKey ? 5 : 1;
        const move = {
            ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1],
        }[event.key];
        if (move) {
            event.preventDefault();
            const point = drawing.points[index];
            const up = (drawing.high - drawing.low) / 50;
            drawing.points[index] = [clip(point[0] + far * move[0] * step()), point[1] + far * move[1] * up];
            commit(index);
        } else if (event.key === "Delete" || event.key === "Backspace") {
            event.preventDefault();
            drawing.points.splice(index, 1);
            commit(Math.min(index, drawing.points.length - 1));
        }
    });

    // ── what Dash calls ─────────────────────────────────────────────────────────────────────────────────────

    let waiting = null;

    aotlens.page("nonlinearity", {
        // The page shows only the controls that the network uses (nonlinearity.css).
        choose: function ({ eta, head, ...controls }) {
            const { preset, inputs, auxiliary, activation, knots, bound } = controls;
            Object.assign(document.getElementById("nonlinearity-page").dataset, { preset, inputs, auxiliary, activation });
            draw(knots, bound);
            const form = Object.entries({ ...controls, eta, head }).map(([name, value]) => [`nonlinearity-${name}`, value ?? null]);
            return { chosen: Object.fromEntries(form) };
        },

        // The slider also moves when the server says where the proof's η is: then there is nothing to ask.
        slide: function ({ value, shown }) {
            if (!shown || Math.abs(value - shown.slider) < 1e-6) return;
            clearTimeout(waiting);
            waiting = setTimeout(() => setProps("nonlinearity-eta", { data: Number((10 ** value).toPrecision(3)) }), 80);
        },

        pick: function ({ cell, point }) {
            if (aotlens.triggered() === "nonlinearity-heads-table") {
                if (!cell?.rowId) return;
                setProps("nonlinearity-head", { data: cell.rowId.split(".").map(Number) });
                return aotlens.openTab("nonlinearity-views", "one");
            }
            const at = point?.points?.[0];
            if (!Number.isFinite(at?.x)) return;
            setProps("nonlinearity-x1", { value: at.x });
            if (document.getElementById("nonlinearity-page").dataset.inputs === "2") setProps("nonlinearity-x2", { value: at.y });
        },

        show: function ({ shown, facts, layers }) {
            document.getElementById("nonlinearity-body")?.toggleAttribute("data-empty", !shown);
            aotlens.draw("nonlinearity-facts", facts);
            aotlens.drawTables("nonlinearity-layers", layers);
        },
    });

    document.addEventListener("click", function ({ target }) {
        if (target instanceof Element && target.closest("#nonlinearity-add")) addPoint();
        if (target instanceof Element && target.closest("#nonlinearity-eta-proof")) {
            clearTimeout(waiting);
            setProps("nonlinearity-eta", { data: null });
        }
    });
})();
