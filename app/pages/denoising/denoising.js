// The query on Denoising's plane is dragged, clicked to another place, or moved with the arrow keys; its descent is asked for
// once it is let go.
(function () {
    "use strict";
    const GRAPH = "denoising-plane-graph", STEP = 0.02; // of the plane's width, per arrow key
    let isHeld = false, waiting = null;

    const plot = () => document.querySelector(`#${GRAPH} .js-plotly-plot`);
    const traceOf = (gd) => gd.data.findIndex((trace) => trace.name === "query");
    const onPlane = (target) => target instanceof Element && target.closest(`#${GRAPH} .nsewdrag`);
    const clip = (value, [low, high]) => Math.min(Math.max(value, low), high);

    function move([x, y], gd) {
        const point = [clip(x, gd._fullLayout.xaxis.range), clip(y, gd._fullLayout.yaxis.range)];
        window.Plotly.restyle(gd, { x: [[point[0]]], y: [[point[1]]] }, [traceOf(gd)]);
        return point;
    }

    function follow({ clientX, clientY }, gd) {
        const { xaxis, yaxis } = gd._fullLayout, { left, top } = gd.getBoundingClientRect();
        return move([xaxis.p2d(clientX - left - xaxis._offset), yaxis.p2d(clientY - top - yaxis._offset)], gd);
    }

    const ask = (point) => aotlens.choose("denoising", { query: point.map((value) => Number(value.toPrecision(4))) });

    document.addEventListener("pointerdown", function (event) {
        if (event.button !== 0 || !onPlane(event.target)) return;
        isHeld = true;
        follow(event, plot());
    }, true);

    document.addEventListener("pointermove", (event) => isHeld && plot() && follow(event, plot()), true);

    document.addEventListener("pointerup", function (event) {
        if (isHeld && plot()) ask(follow(event, plot()));
        isHeld = false;
    }, true);

    document.addEventListener("keydown", function (event) {
        const to = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key], gd = plot();
        if (!to || !gd || event.target.id !== `${GRAPH}-box`) return;
        event.preventDefault();
        const { x, y } = gd._fullData[traceOf(gd)]; // as plotly has read them: in `data` they are still packed
        const [low, high] = gd._fullLayout.xaxis.range, far = (event.shiftKey ? 5 : 1) * STEP * (high - low);
        const point = move([x[0] + far * to[0], y[0] + far * to[1]], gd);
        clearTimeout(waiting);
        waiting = aotlens.later(() => ask(point), 80);
    });

    aotlens.page("denoising", {
        show: function () {
            const box = document.getElementById(`${GRAPH}-box`);
            if (!box) return;
            box.tabIndex = 0;
            box.dataset.drags = ""; // shell.css
            box.setAttribute("role", "group");
            box.setAttribute("aria-label", "The plane: arrow keys move the query, with Shift farther");
        },
    });
})();
