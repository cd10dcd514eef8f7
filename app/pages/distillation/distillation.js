// The Distillation page between two questions to the server: pick a head, run a text.
(function () {
    "use strict";

    function fromId(id) {
        const [, of, layer, head] = /^(.*):(\d+)\.(\d+)$/.exec(id) || [];
        return of === undefined ? null : { of: of, layer: Number(layer), head: Number(head) };
    }

    // dcc.Graph leaves a heatmap's customdata out; its grids stand in the order of the results.
    function fromGrid(click, shown) {
        const cell = click && click.points && click.points[0];
        if (!cell || !shown || cell.z === null) return null;
        return { of: shown.results[cell.curveNumber], layer: Number(cell.y), head: Number(cell.x) };
    }

    function fromCloud(click) {
        const point = click && click.points && click.points[0];
        if (!point || !point.customdata) return null;
        const [of, layer, head] = point.customdata;
        return { of: of, layer: layer, head: head };
    }

    const map = aotlens.headsOf({ route: "/maps", page: "heads", panels: ["distillation-on-text"], parts: [["distillation-canvas", "LargeMap"]] });

    aotlens.page("distillation", {
        // A click in the grids, among the points or in the table, or a button of the head picker -> a head.
        pick: function ({ grid, cloud, cell, picked, shown }) {
            const asked = {
                "distillation-all-table": () => (cell && cell.colId === "name" ? fromId(cell.rowId) : null),
                "distillation-picked": () => (picked && shown ? { of: shown.of, layer: picked[0], head: picked[1] } : null),
                "distillation-grid-graph": () => fromGrid(grid, shown),
                "distillation-cloud-graph": () => fromCloud(cloud),
            }[aotlens.triggered()]();
            if (!asked) return {};
            aotlens.openTab("distillation-besides", "head");
            return { asked: asked };
        },

        submit: function ({ text }) {
            // What stands in the box, not what Dash was last told: Ctrl+Enter can come before it hears of the typing.
            const box = document.getElementById("distillation-text");
            const chosen = (box ? box.value : text) || "";
            const most = Number(document.querySelector("[data-max-characters]").dataset.maxCharacters);
            return { prompt: chosen.length > most ? { length: chosen.length } : { text: chosen } };
        },

        show: function ({ shown, strip }) {
            aotlens.draw("distillation-strip", strip);
            const body = document.getElementById("distillation-body");
            if (body) body.toggleAttribute("data-empty", !shown);
            const title = document.getElementById("distillation-one-title");
            if (title) title.textContent = shown ? `Head ${shown.layer}.${shown.head} of ${shown.of}` : "One head";
        },

        showMap: function ({ mapped }) {
            const { head = [0, 0], ...asked } = mapped ?? {};
            map.show(mapped && asked, { head, position: null, cell: null });
        },
    });
})();
