// The Distillation page between two questions to the server: pick a head, run a text, write the address.
(function () {
    "use strict";
    const none = () => dash_clientside.no_update;

    function fromId(id) {
        const [, of, layer, head] = /^(.*):(\d+)\.(\d+)$/.exec(id) || [];
        return of === undefined ? null : { of: of, layer: Number(layer), head: Number(head) };
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        distillation: {
            // A click in the grids, among the points or in the table, or a button of the head picker -> a head.
            pick: function (inGrid, inCloud, inTable, picked, shown) {
                const by = dash_clientside.callback_context.triggered.map((one) => one.prop_id.split(".")[0])[0];
                if (by === "distilled-table-grid") {
                    return inTable && inTable.colId === "name" ? fromId(inTable.rowId) || none() : none();
                }
                if (by === "distillation-picked") {
                    return picked && shown ? { of: shown.of, layer: picked[0], head: picked[1] } : none();
                }
                if (by === "distilled-grid-graph") {
                    // dcc.Graph leaves a heatmap's customdata out; its grids stand in the order of the results.
                    const cell = inGrid && inGrid.points && inGrid.points[0];
                    if (!cell || !shown || cell.z === null) return none();
                    return { of: shown.results[cell.curveNumber], layer: Number(cell.y), head: Number(cell.x) };
                }
                const point = inCloud && inCloud.points && inCloud.points[0];
                if (!point || !point.customdata) return none();
                const [of, layer, head] = point.customdata;
                return { of: of, layer: layer, head: head };
            },

            submit: function (clicks, text) {
                // What stands in the box, not what Dash was last told: Ctrl+Enter can come before it hears of the typing.
                const box = document.getElementById("distillation-text");
                const chosen = (box ? box.value : text) || "";
                const most = Number(document.querySelector("[data-max-characters]").dataset.maxCharacters);
                return chosen.length > most ? { text: "", length: chosen.length } : { text: chosen };
            },

            show: function (shown) {
                const body = document.getElementById("distillation-body");
                if (body) body.toggleAttribute("data-empty", !shown);
            },

            writeAddress: function (shown, prompt) {
                if (location.pathname !== "/distillation" || !shown) return;
                const query = new URLSearchParams({ results: shown.results.join(",") });
                query.set("width", shown.width);
                if (shown.across !== "first") query.set("across", shown.across);
                query.set("of", shown.of);
                query.set("head", shown.layer + "." + shown.head);
                const first = document.querySelector(".distillation-page").dataset.first;
                if (prompt && !prompt.length && prompt.text !== first) query.set("text", prompt.text);
                history.replaceState(history.state, "", "/distillation?" + query.toString());
            },
        },
    });
})();
