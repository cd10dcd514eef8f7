// The Skip-trigrams page between two questions to the server: pick a head or a row, hand the filters to the grid, write
// the address.
(function () {
    "use strict";
    const setProps = (id, props) => dash_clientside.set_props(id, props);
    let shown = null;

    // ── heads ───────────────────────────────────────────────────────────────────────────────────────────────

    function chooseHead(layer, head) {
        if (shown && shown.layer === layer && shown.head === head) return;
        markHead(layer, head);
        setProps("trigrams-head", { data: [layer, head] });
    }

    function markHead(layer, head) {
        for (const button of document.querySelectorAll("#trigrams-heads .pick-head")) {
            const here = Number(button.dataset.layer) === layer && Number(button.dataset.head) === head;
            button.setAttribute("aria-pressed", String(here));
            button.tabIndex = here ? 0 : -1;
        }
    }

    function headOf(target) {
        return target instanceof Element ? target.closest("#trigrams-heads .pick-head") : null;
    }

    document.addEventListener("click", function (event) {
        const button = headOf(event.target);
        if (button) chooseHead(Number(button.dataset.layer), Number(button.dataset.head));
    });

    document.addEventListener("keydown", function (event) {
        const button = headOf(event.target);
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!button || !step) return;
        event.preventDefault();
        const layer = Number(button.dataset.layer) + step[0];
        const head = Number(button.dataset.head) + step[1];
        const next = document.querySelector(`#trigrams-heads .pick-head[data-layer="${layer}"][data-head="${head}"]`);
        if (!next) return;
        next.focus();
        chooseHead(layer, head);
    });

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        trigrams: {
            mark: function (choice) {
                shown = choice;
                if (choice) requestAnimationFrame(() => markHead(choice.layer, choice.head));
            },

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
                if (record) chooseHead(record.goto[0], record.goto[1]);
            },

            writeAddress: function (choice, source, destination, out, within, verdict, kind, corpus, tokens, row) {
                if (location.pathname !== "/trigrams" || !choice) return;
                const query = new URLSearchParams({ checkpoint: choice.checkpoint });
                query.set("head", choice.layer + "." + choice.head);
                if (choice.score !== "effect") query.set("score", choice.score);
                if (choice.end !== "top") query.set("end", choice.end);
                if (choice.distance !== null) query.set("distance", choice.distance);
                if (choice.k !== 500) query.set("k", choice.k);
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
