// Non-linearity's own controls: a function that is drawn by hand, and sliders of the input x. Both set fields of the page.
(function () {
    "use strict";
    const WIDTH = 560, HEIGHT = 250, MARGIN = 26, PAGE = "nonlinearity";
    const drawing = { points: [], bound: 2, low: -1, high: 1, held: null };
    let waiting = null;

    const short = (value) => Number(value.toFixed(3)).toString();
    const said = (points) => points.map((point) => point.map(short).join(",")).join(";");
    const snap = (value, unit) => Math.round(value / unit) * unit;
    const clip = (x) => Math.min(Math.max(x, -drawing.bound), drawing.bound);
    const toX = (x) => MARGIN + (x + drawing.bound) / (2 * drawing.bound) * (WIDTH - 2 * MARGIN);
    const toY = (y) => MARGIN + (drawing.high - y) / (drawing.high - drawing.low) * (HEIGHT - 2 * MARGIN);
    const within = aotlens.closest;

    // ── drawing ─────────────────────────────────────────────────────────────────────────────────────────────

    function fromEvent({ clientX, clientY }, svg) {
        const at = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
        const x = (at.x - MARGIN) / (WIDTH - 2 * MARGIN) * 2 * drawing.bound - drawing.bound;
        const y = drawing.high - (at.y - MARGIN) / (HEIGHT - 2 * MARGIN) * (drawing.high - drawing.low);
        return [clip(snap(x, drawing.bound / 100)), snap(y, (drawing.high - drawing.low) / 200)];
    }

    function read(text) {
        const lines = text.replace(/−/g, "-").split(/[\n;]/);
        const points = lines.map((line) => line.split(",").map((part) => part.trim() === "" ? NaN : Number(part)));
        return points.filter((point) => point.length === 2 && point.every(Number.isFinite));
    }

    // The points from left to right, and flat beyond them to both ends.
    function outline() {
        const sorted = drawing.points.slice().sort((a, b) => a[0] - b[0]), ends = [sorted[0]?.[1] ?? 0, sorted.at(-1)?.[1] ?? 0];
        return [[-drawing.bound, ends[0]], ...sorted, [drawing.bound, ends[1]]];
    }

    // Only numbers of ours are written here: what somebody types is read as numbers first.
    function paint(focused) {
        const box = document.getElementById("nonlinearity-editor"), { points, bound } = drawing;
        focused ??= within(document.activeElement, "#nonlinearity-editor .knot")?.dataset.index;
        if (drawing.held === null) { // a point that is dragged does not move the frame
            const ys = points.map((point) => point[1]), low = Math.min(-1, ...ys), high = Math.max(1, ...ys);
            Object.assign(drawing, { low: low - 0.15 * (high - low), high: high + 0.15 * (high - low) });
        }
        const label = (x, y, value, end = "") => `<text x="${x}" y="${y}" ${end}>${short(value).replace("-", "−")}</text>`;
        const line = outline().map(([x, y]) => `${toX(clip(x))},${toY(y)}`).join(" ");
        const knots = points.map((point, index) => `<circle class="knot" cx="${toX(point[0])}" cy="${toY(point[1])}" r="7"
            tabindex="0" role="button" data-index="${index}" aria-label="Point ${index + 1} of ${points.length}: x ${short(point[0])},
            y ${short(point[1])}. Arrow keys move it, Delete removes it."><title>${said([point])}</title></circle>`);
        box.innerHTML = `<svg class="drawing" viewBox="0 0 ${WIDTH} ${HEIGHT}">
            <path d="M${toX(-bound)} ${toY(0)}H${toX(bound)}M${toX(0)} 0V${HEIGHT}"/>
            ${label(toX(-bound), HEIGHT - 6, -bound)}${label(toX(bound), HEIGHT - 6, bound, 'text-anchor="end"')}
            ${label(4, toY(drawing.high) - 10, drawing.high)}${label(4, toY(drawing.low) + 4, drawing.low)}
            <polyline points="${points.length ? line : ""}"/>${knots.join("")}</svg>`;
        box.querySelector(`[data-index="${focused}"]`)?.focus();
    }

    function commit(focused) {
        drawing.held = null;
        paint(focused);
        aotlens.choose(PAGE, { knots: said(drawing.points) });
    }

    // In the middle of the widest gap, on the line that is there.
    function addPoint() {
        const ends = outline();
        const gaps = ends.slice(1).map((point, index) => point[0] - ends[index][0]), widest = gaps.indexOf(Math.max(...gaps));
        drawing.points.push([0, 1].map((axis) => (ends[widest][axis] + ends[widest + 1][axis]) / 2));
        commit(drawing.points.length - 1);
    }

    document.addEventListener("pointerdown", function (event) {
        const svg = within(event.target, "#nonlinearity-editor svg"), typed = document.getElementById("nonlinearity-field-knots");
        if (!svg || event.button !== 0) return;
        event.preventDefault(); // which keeps the focus where it is: a box that is typed in would go on to wait
        if (document.activeElement === typed) {
            drawing.points = read(typed.value); // which Dash has not been told yet
            typed.blur();
        }
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
        document.addEventListener(end, () => drawing.held !== null && commit(drawing.held));
    }

    const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

    document.addEventListener("keydown", function (event) {
        const knot = within(event.target, "#nonlinearity-editor .knot"), move = MOVES[event.key];
        if (!knot || !(move || ["Delete", "Backspace"].includes(event.key))) return;
        event.preventDefault();
        const index = Number(knot.dataset.index), far = event.shiftKey ? 5 : 1, { bound, low, high, points } = drawing;
        const [x, y] = points[index];
        if (move) points[index] = [clip(x + far * move[0] * bound / 40), y + far * move[1] * (high - low) / 50];
        else points.splice(index, 1);
        commit(Math.min(index, points.length - 1));
    });

    document.addEventListener("click", ({ target }) => within(target, "#nonlinearity-add") && addPoint());

    // ── the input x ─────────────────────────────────────────────────────────────────────────────────────────

    function slide() {
        const x = [...document.querySelectorAll("#nonlinearity-inputs input")].map((slider) => Number(slider.value));
        clearTimeout(waiting);
        waiting = aotlens.later(() => aotlens.choose(PAGE, { x }), 80);
    }

    // One slider for each input of the network.
    function showInputs({ bound, inputs, x }) {
        const box = document.getElementById("nonlinearity-inputs"), from = x?.length ? x : [bound / 4];
        while (box.children.length > inputs) box.lastElementChild.remove();
        while (box.children.length < inputs) {
            const slider = aotlens.element("input", { type: "range", step: "any", oninput: slide });
            box.append(aotlens.element("label", { className: "field-label" }, `Input ${["x", "x₂"][box.children.length]}`, slider));
        }
        [...box.querySelectorAll("input")].forEach(function (slider, place) {
            Object.assign(slider, { min: -bound, max: bound, step: bound / 200 });
            if (slider !== document.activeElement || !waiting) slider.value = from[Math.min(place, from.length - 1)];
        });
    }

    aotlens.page(PAGE, {
        show: function ({ shown }) {
            const panel = document.getElementById("nonlinearity-drawing");
            if (!panel || !shown) return;
            panel.classList.toggle("hidden", shown.preset !== "drawn");
            const points = read(shown.knots), bound = shown.bound || 2;
            const isDrawn = bound === drawing.bound && said(points) === said(drawing.points) && panel.querySelector("svg");
            if (!isDrawn && drawing.held === null) { // what is drawn already keeps its focus
                Object.assign(drawing, { points, bound });
                paint();
            }
            showInputs({ ...shown, bound });
        },

        // A click on the error chooses its input.
        pick: function ({ point }) {
            const at = point?.points?.[0], isPlane = document.querySelectorAll("#nonlinearity-inputs input").length === 2;
            if (Number.isFinite(at?.x)) aotlens.choose(PAGE, { x: isPlane ? [at.x, at.y] : [at.x] });
        },
    });
})();
