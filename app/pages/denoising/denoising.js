// The In-context denoising page between two questions to the server: the query is dragged, clicked to another place, or
// moved with the arrow keys; its way downhill is asked for when it is let go.
(function () {
    "use strict";
    const GRAPH = "denoising-plane-graph";
    const STEP = 0.02; // of the plane's width, an arrow key
    let held = false, waiting = null;

    const plot = () => document.querySelector(`#${GRAPH} .js-plotly-plot`);
    const traceOf = (gd) => gd.data.findIndex((trace) => trace.name === "query");

    // What plotly has read: in its `data`, numbers from the server are still packed.
    function queryOf(gd) {
        const { x, y } = gd._fullData[traceOf(gd)];
        return [x[0], y[0]];
    }

    function fromEvent(event, gd) {
        const { xaxis, yaxis } = gd._fullLayout, box = gd.getBoundingClientRect();
        const x = xaxis.p2d(event.clientX - box.left - xaxis._offset), y = yaxis.p2d(event.clientY - box.top - yaxis._offset);
        return inside([x, y], gd);
    }

    function inside([x, y], gd) {
        const clip = (value, [low, high]) => Math.min(Math.max(value, low), high);
        return [clip(x, gd._fullLayout.xaxis.range), clip(y, gd._fullLayout.yaxis.range)];
    }

    function put(point, gd) {
        window.Plotly.restyle(gd, { x: [[point[0]]], y: [[point[1]]] }, [traceOf(gd)]);
    }

    function tell(point) {
        aotlens.setProps("denoising-query", { data: point.map((value) => Number(value.toPrecision(4))) });
    }

    document.addEventListener("pointerdown", function (event) {
        const gd = plot();
        if (!gd || event.button !== 0 || !(event.target instanceof Element)) return;
        if (!gd.contains(event.target) || !event.target.closest(".nsewdrag")) return;
        held = true;
        put(fromEvent(event, gd), gd);
    }, true);

    document.addEventListener("pointermove", function (event) {
        const gd = plot();
        if (held && gd) put(fromEvent(event, gd), gd);
    }, true);

    document.addEventListener("pointerup", function (event) {
        const gd = plot();
        if (held && gd) tell(fromEvent(event, gd));
        held = false;
    }, true);

    document.addEventListener("keydown", function (event) {
        const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
        const gd = plot();
        if (!move || !gd || !(event.target instanceof Element) || event.target.id !== `${GRAPH}-box`) return;
        event.preventDefault();
        const [low, high] = gd._fullLayout.xaxis.range, [x, y] = queryOf(gd);
        const far = (event.shiftKey ? 5 : 1) * STEP * (high - low);
        const point = inside([x + far * move[0], y + far * move[1]], gd);
        put(point, gd);
        clearTimeout(waiting);
        waiting = aotlens.later(() => tell(point), 80);
    });

    aotlens.page("denoising", {
        show: function ({ shown }) {
            const page = document.getElementById("denoising-page");
            if (page) page.toggleAttribute("data-empty", !shown);
            if (page && shown) page.dataset.task = shown.task;
            const box = document.getElementById("denoising-plane-graph-box");
            if (!box) return;
            box.tabIndex = 0;
            box.setAttribute("role", "group");
            box.setAttribute("aria-label", "The plane: arrow keys move the query, with Shift farther");
        },

        // Another prompt has another query.
        asDrawn: function () {
            clearTimeout(waiting);
            return { query: null };
        },
    });
})();
