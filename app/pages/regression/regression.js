// The In-context regression page between two questions to the server: a click on the map locks the query of its row, or
// lets it go; Escape, too.
(function () {
    "use strict";
    const state = { query: null };
    const map = aotlens.headMap("regression-map");

    const frame = () => map.frame(state.query, true);
    map.drawn = frame;

    document.addEventListener("keydown", function (event) {
        const inside = event.target instanceof Element && event.target.closest("#regression-map, #regression-cells");
        if (event.key === "Escape" && inside && state.query !== null) aotlens.setProps("regression-query", { value: null });
    });

    aotlens.page("regression", {
        show: function ({ shown, query }) {
            const page = document.getElementById("regression-page");
            if (page) page.toggleAttribute("data-empty", !shown);
            state.query = query === null || query === undefined ? null : Number(query);
            map.want(state.query);
            requestAnimationFrame(frame);
        },

        // The map's labels are y3 · 5: what stands there, and its position.
        lock: function ({ click, query }) {
            const point = click && click.points && click.points[0];
            const found = point && String(point.y).match(/(\d+)$/);
            if (!found) return {};
            return { query: found[1] === query ? null : found[1] };
        },
    });
})();
