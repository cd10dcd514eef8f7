// The Skip-trigrams page between two questions to the server: pick a row, hand the filters to the grid, write the address.
(function () {
    "use strict";

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        trigrams: {
            // Which rows the grid shall ask for: the table, and the filters. The grid sends them back with each request.
            list: function (found, source, destination, out, within, verdict, kind) {
                const body = document.getElementById("trigrams-body");
                if (body) body.toggleAttribute("data-empty", !found);
                const here = within === "table";
                const context = found ? {
                    choice: found.choice, reading: found.reading, checked: found.checked,
                    filters: {
                        source: here ? source : "", destination: here ? destination : "", out: here ? out : "",
                        verdict: verdict, kind: kind,
                    },
                } : null;
                window.dash_ag_grid.getApiAsync("trigram-grid").then(function (api) {
                    if (!api || api.isDestroyed()) return;
                    if (JSON.stringify(api.getGridOption("context")) === JSON.stringify(context)) return;
                    const before = api.getGridOption("context");
                    if (before && context && JSON.stringify(before.choice) !== JSON.stringify(context.choice)) {
                        api.deselectAll();
                    }
                    api.setGridOption("context", context);
                    api.purgeInfiniteCache();
                });
            },

            pick: function (selected) {
                const row = selected && selected[0];
                return row && row.rank ? row.rank : dash_clientside.no_update;
            },

            showPasted: (corpus) => corpus === "pasted text" ? "evidence-pasted" : "evidence-pasted hidden",

            walk: function (click, rows) {
                const record = click && rows && rows.find((row) => row.head === click.value);
                if (record) dash_clientside.pickHeads.choose("trigrams-heads", record.goto[0], record.goto[1]);
            },

            writeAddress: function (choice, source, destination, out, within, verdict, kind, corpus, tokens, row) {
                if (location.pathname !== "/trigrams" || !choice) return;
                const query = new URLSearchParams({ checkpoint: choice.checkpoint });
                query.set("head", choice.layer + "." + choice.head);
                if (choice.score !== "effect") query.set("score", choice.score);
                if (choice.end !== "top") query.set("end", choice.end);
                if (choice.distance !== null) query.set("distance", choice.distance);
                if (choice.k !== 500) query.set("k", choice.k);
                if (choice.least) query.set("least", choice.least);
                if (source) query.set("source", source);
                if (destination) query.set("destination", destination);
                if (out) query.set("out", out);
                if (within !== "table") query.set("within", within);
                if (verdict) query.set("verdict", verdict);
                if (kind) query.set("kind", kind);
                if (corpus && corpus !== "pasted text") query.set("corpus", corpus);
                if (tokens && String(tokens) !== "100000") query.set("tokens", tokens);
                if (row) query.set("row", row);
                history.replaceState(history.state, "", "/trigrams?" + query.toString());
            },
        },
    });
})();
