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

    function paint(focused) {
        const box = document.getElementById("nonlinearity-editor");
        if (!box) return;
        const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
        svg.append(element("line", { class: "axis", x1: toX(-drawing.bound), x2: toX(drawing.bound), y1: toY(0), y2: toY(0) }));
        svg.append(element("line", { class: "axis", x1: toX(0), x2: toX(0), y1: 0, y2: HEIGHT }));
        svg.append(element("text", { class: "label", x: toX(-drawing.bound), y: HEIGHT - 6 }, "−" + short(drawing.bound)));
        svg.append(element("text", { class: "label", x: toX(drawing.bound), y: HEIGHT - 6, "text-anchor": "end" }, short(drawing.bound)));
        svg.append(element("text", { class: "label", x: 4, y: toY(drawing.high) - 10 }, short(drawing.high)));
        svg.append(element("text", { class: "label", x: 4, y: toY(drawing.low) + 4 }, short(drawing.low)));
        const sorted = drawing.points.slice().sort((a, b) => a[0] - b[0]);
        if (sorted.length) {
            const path = [[-drawing.bound, sorted[0][1]], ...sorted, [drawing.bound, sorted[sorted.length - 1][1]]];
            const inside = path.map((point) => `${toX(clip(point[0]))},${toY(point[1])}`);
            svg.append(element("polyline", { class: "curve", points: inside.join(" ") }));
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
        // Only the controls that the network uses are there (nonlinearity.css).
        arrange: function ({ preset, inputs, auxiliary, activation }) {
            const page = document.getElementById("nonlinearity-page");
            if (page) Object.assign(page.dataset, { preset: preset, inputs: inputs, auxiliary: auxiliary, activation: activation });
        },

        draw: function ({ text, bound }) {
            const reach = Number(String(bound).replace("−", "-"));
            drawing.bound = Number.isFinite(reach) && reach > 0 ? reach : 2;
            if (drawing.held !== null) return;
            const points = read(text);
            const same = points.length === drawing.points.length
                && points.every((point, index) => point.every((value, axis) => short(value) === short(drawing.points[index][axis])));
            if (same && document.querySelector("#nonlinearity-editor svg")) return; // drawn already, and keeps its focus
            drawing.points = points;
            frame();
            paint();
        },

        // In the middle of the widest gap, on the line that is there.
        addPoint: function ({ clicks }) {
            if (!clicks) return;
            const sorted = drawing.points.slice().sort((a, b) => a[0] - b[0]);
            const ends = [[-drawing.bound, sorted.length ? sorted[0][1] : 0], ...sorted,
                [drawing.bound, sorted.length ? sorted[sorted.length - 1][1] : 0]];
            let widest = 1;
            for (let i = 1; i < ends.length; i += 1) {
                if (ends[i][0] - ends[i - 1][0] > ends[widest][0] - ends[widest - 1][0]) widest = i;
            }
            const [left, right] = [ends[widest - 1], ends[widest]];
            drawing.points.push([(left[0] + right[0]) / 2, (left[1] + right[1]) / 2]);
            commit(drawing.points.length - 1);
        },

        // The slider also moves when the server says where the proof's η is: then there is nothing to ask.
        slide: function ({ value, shown }) {
            if (!shown || Math.abs(value - shown.slider) < 1e-6) return;
            clearTimeout(waiting);
            waiting = setTimeout(() => setProps("nonlinearity-eta", { data: Number((10 ** value).toPrecision(3)) }), 80);
        },

        proof: function ({ clicks }) {
            clearTimeout(waiting);
            if (clicks) setProps("nonlinearity-eta", { data: null });
        },

        takeHead: function ({ click }) {
            if (!click || !click.rowId) return;
            setProps("nonlinearity-head", { data: click.rowId.split(".").map(Number) });
            aotlens.openTab("nonlinearity-views", "one");
        },

        takeInput: function ({ click }) {
            const point = click && click.points && click.points[0];
            if (!point || !Number.isFinite(point.x)) return;
            setProps("nonlinearity-x1", { value: point.x });
            const page = document.getElementById("nonlinearity-page");
            if (page.dataset.inputs === "2") setProps("nonlinearity-x2", { value: point.y });
        },

        show: function ({ shown }) {
            const body = document.getElementById("nonlinearity-body");
            if (body) body.toggleAttribute("data-empty", !shown);
        },
    });
})();
