// The Skip-trigrams page between two questions to the server: pick a row, hand the filters to the grid.
aotlens.page("trigrams", {
    // Which rows the grid shall ask for: the table, and the filters. The grid sends them back with each request.
    list: function ({ shown, source, destination, out, within, verdict, kind, opened }) {
        const body = document.getElementById("trigrams-body");
        if (body) body.toggleAttribute("data-empty", !shown);
        const tokens = within === "table" ? { source, destination, out } : {};
        const context = shown ? {
            choice: shown.choice, reading: shown.reading, checked: shown.checked, filters: { ...tokens, verdict, kind },
            opened,
        } : null;
        aotlens.listRows("trigrams-rows-table", shown && shown.choice, context);
    },

    pick: function ({ selected }) {
        const row = selected && selected[0];
        if (!row || !row.rank) return {};
        aotlens.openTab("trigrams-besides", "one");
        return { row: row.rank };
    },

    // The direct path, of the same checkpoint, as many rows of it, beside the same text.
    askPath: function ({ asked, reading, after, own, before }) {
        const path = asked && reading ? { checkpoint: asked.checkpoint, k: asked.k, own, after, reading } : null;
        return JSON.stringify(path) === JSON.stringify(before ?? null) ? {} : { path };
    },

    unfold: function ({ click, opened }) {
        if (!click || click.colId !== "folded" || !click.value) return {};
        const rank = Number(click.rowId);
        return { opened: opened.includes(rank) ? opened.filter((other) => other !== rank) : [...opened, rank] };
    },

    walk: function ({ click, rows }) {
        const record = click && rows && rows.find((row) => row.head === click.value);
        if (record) aotlens.pickHead("trigrams-heads", record.goto[0], record.goto[1]);
    },
});
