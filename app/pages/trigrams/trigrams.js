// The Skip-trigrams page between two questions to the server: pick a row, hand the filters to the grid.
aotlens.page("trigrams", {
    // Which rows the grid shall ask for: the table, and the filters. The grid sends them back with each request.
    list: function ({ shown, source, destination, out, within, verdict, kind }) {
        const body = document.getElementById("trigrams-body");
        if (body) body.toggleAttribute("data-empty", !shown);
        const tokens = within === "table" ? { source, destination, out } : {};
        const context = shown ? {
            choice: shown.choice, reading: shown.reading, checked: shown.checked, filters: { ...tokens, verdict, kind },
        } : null;
        aotlens.listRows("trigrams-rows-table", shown && shown.choice, context);
    },

    pick: function ({ selected }) {
        const row = selected && selected[0];
        return row && row.rank ? { row: row.rank } : {};
    },

    showPasted: ({ corpus }) => ({ box: corpus === "pasted text" ? "evidence-pasted" : "evidence-pasted hidden" }),

    walk: function ({ click, rows }) {
        const record = click && rows && rows.find((row) => row.head === click.value);
        if (record) aotlens.pickHead("trigrams-heads", record.goto[0], record.goto[1]);
    },
});
