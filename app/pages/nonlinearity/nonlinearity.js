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

    const short = (value) => Number(value.toFixed(3)).toString();
    const said = (points) => points.map((point) => point.map(short).join(", ")).join("\n");
    const snap = (value, unit) => Math.round(value / unit) * unit;
    const clip = (x) => Math.min(Math.max(x, -drawing.bound), drawing.bound);
    const toX = (x) => MARGIN + (x + drawing.bound) / (2 * drawing.bound) * (WIDTH - 2 * MARGIN);
    const toY = (y) => MARGIN + (drawing.high - y) / (drawing.high - drawing.low) * (HEIGHT - 2 * MARGIN);

    function fromEvent(event, svg) {
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        const x = (at.x - MARGIN) / (WIDTH - 2 * MARGIN) * 2 * drawing.bound - drawing.bound;
        const y = drawing.high - (at.y - MARGIN) / (HEIGHT - 2 * MARGIN) * (drawing.high - drawing.low);
        return [clip(snap(x, drawing.bound / 100)), snap(y, (drawing.high - drawing.low) / 200)];
    }

    function read(text) {
        const lines = String(text || "").replace(/−/g, "-").split(/[\n;]/);
        const points = lines.map((line) => line.split(",").map((part) => part.trim() === "" ? NaN : Number(part)));
        return points.filter((point) => point.length === 2 && point.every(Number.isFinite));
    }

    // The points from left to right, and flat beyond them to both ends.
    function outline() {
        const sorted = drawing.points.slice().sort((a, b) => a[0] - b[0]), ends = [sorted[0]?.[1] ?? 0, sorted.at(-1)?.[1] ?? 0];
        return [[-drawing.bound, ends[0]], ...sorted, [drawing.bound, ends[1]]];
    }

    // Numbers of ours alone are written here: what somebody types is read as numbers first.
    function paint(focused) {
        const box = document.getElementById("nonlinearity-editor"), { points, bound } = drawing;
        if (!box) return;
        focused ??= within(document.activeElement, "#nonlinearity-editor .knot")?.dataset.index;
        if (drawing.held === null) { // a point that is dragged does not move the frame
            const ys = points.map((point) => point[1]), low = Math.min(-1, ...ys), high = Math.max(1, ...ys);
            Object.assign(drawing, { low: low - 0.15 * (high - low), high: high + 0.15 * (high - low) });
        }
        const label = (x, y, value, end = "") => `<text class="label" x="${x}" y="${y}" ${end}>${short(value).replace("-", "−")}</text>`;
        const line = outline().map(([x, y]) => `${toX(clip(x))},${toY(y)}`).join(" ");
        const knots = points.map((point, index) => `<circle class="knot" cx="${toX(point[0])}" cy="${toY(point[1])}" r="7"
            tabindex="0" role="button" data-index="${index}" aria-label="Point ${index + 1} of ${points.length}: x ${short(point[0])},
            y ${short(point[1])}. Arrow keys move it, Delete removes it."><title>${said([point])}</title></circle>`);
        box.innerHTML = `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" data-bound="${bound}">
            <path class="axis" d="M${toX(-bound)} ${toY(0)}H${toX(bound)}M${toX(0)} 0V${HEIGHT}"/>
            ${label(toX(-bound), HEIGHT - 6, -bound)}${label(toX(bound), HEIGHT - 6, bound, 'text-anchor="end"')}
            ${label(4, toY(drawing.high) - 10, drawing.high)}${label(4, toY(drawing.low) + 4, drawing.low)}
            <polyline class="curve" points="${points.length ? line : ""}"/>${knots.join("")}</svg>`;
        box.querySelector(`[data-index="${focused}"]`)?.focus();
    }

    function commit(focused) {
        drawing.held = null;
        paint(focused);
        setProps("nonlinearity-knots", { value: said(drawing.points) });
    }

    // What is drawn already keeps its focus.
    function draw(text, bound) {
        const reach = Number(String(bound).replace("−", "-")), points = read(text);
        drawing.bound = Number.isFinite(reach) && reach > 0 ? reach : 2;
        const there = document.querySelector("#nonlinearity-editor svg");
        const same = there && Number(there.dataset.bound) === drawing.bound && said(points) === said(drawing.points);
        if (same || drawing.held !== null) return;
        drawing.points = points;
        paint();
    }

    // In the middle of the widest gap, on the line that is there.
    function addPoint() {
        const ends = outline();
        const gaps = ends.slice(1).map((point, index) => point[0] - ends[index][0]), widest = gaps.indexOf(Math.max(...gaps));
        drawing.points.push([0, 1].map((axis) => (ends[widest][axis] + ends[widest + 1][axis]) / 2));
        commit(drawing.points.length - 1);
    }

    const within = (target, what) => target instanceof Element ? target.closest(what) : null;

    // What stands in the box, not what Dash was last told: whoever types and draws at once means both.
    document.addEventListener("focusout", function ({ target }) {
        if (target.id === "nonlinearity-knots") drawing.points = read(target.value);
    });

    document.addEventListener("pointerdown", function (event) {
        const svg = within(event.target, "#nonlinearity-editor svg");
        if (!svg || event.button !== 0) return;
        event.preventDefault(); // which keeps the focus where it is: a box that is typed in would go on to wait
        if (document.activeElement.id === "nonlinearity-knots") document.activeElement.blur();
        const knot = within(event.target, ".knot");
        drawing.held = knot ? Number(knot.dataset.index) : drawing.points.push(fromEvent(event, svg)) - 1;
        if (knot) knot.focus();
        else paint(drawing.held);
    });

    document.addEventListener("pointermove", function (event) {
        const svg = drawing.held === null ? null : document.querySelector("#nonlinearity-editor svg");
        if (!svg) return;
        drawing.points[drawing.held] = fromEvent(event, svg);
        paint(drawing.held);
    });

    for (const end of ["pointerup", "pointercancel"]) {
        document.addEventListener(end, function () {
            if (drawing.held !== null) commit(drawing.held);
        });
    }

    const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

    document.addEventListener("keydown", function (event) {
        const knot = within(event.target, "#nonlinearity-editor .knot"), move = MOVES[event.key];
        if (!knot || !(move || ["Delete", "Backspace"].includes(event.key))) return;
        event.preventDefault();
        const index = Number(knot.dataset.index), far = event.shiftKey ? 5 : 1, [x, y] = drawing.points[index];
        const { bound, low, high, points } = drawing;
        if (move) points[index] = [clip(x + far * move[0] * bound / 40), y + far * move[1] * (high - low) / 50];
        else points.splice(index, 1);
        commit(Math.min(index, points.length - 1));
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
            clearTimeout(waiting);
            if (!shown || Math.abs(value - shown.slider) < 1e-6) return;
            waiting = aotlens.later(() => setProps("nonlinearity-eta", { data: Number((10 ** value).toPrecision(3)) }), 80);
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
        if (within(target, "#nonlinearity-add")) addPoint();
        if (!within(target, "#nonlinearity-eta-proof")) return;
        clearTimeout(waiting);
        setProps("nonlinearity-eta", { data: null });
    });
})();
