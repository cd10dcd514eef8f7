// The Atlas page between two questions to the server: a click on a head opens its summary.
(function () {
    "use strict";

    function open(layer, head) {
        aotlens.pickHead("atlas-heads", layer, head);
        aotlens.openTab("atlas-tabs", "head");
    }

    document.addEventListener("click", function (event) {
        const button = event.target instanceof Element ? event.target.closest(".atlas-go") : null;
        if (button) open(Number(button.dataset.layer), Number(button.dataset.head));
    });

    aotlens.page("atlas", {
        // The head whose summary is open, of the atlas that is shown: the first one where that has no such head.
        choose: function ({ shown, head }) {
            const picked = Boolean(shown && head && head[0] < shown.layers && head[1] < shown.heads);
            const [layer, number] = picked ? head : [0, 0];
            return { chosen: shown && { ...shown, layer, head: number, picked } };
        },

        openFromTable: function ({ click, rows }) {
            const row = click && rows && rows.find((one) => one.name === click.rowId);
            if (row && click.colId === "order") open(...row.goto);
        },

        openFromPoint: function ({ click }) {
            const point = click && click.points && click.points[0];
            if (point && point.customdata) open(...String(point.customdata).split(".").map(Number));
        },
    });
})();
