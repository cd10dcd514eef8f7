// Tables of any length (app/shell/tables.py, `long_grid`): the grid asks for the rows in view, the server sends them.
// Not through dash-ag-grid's getRowsResponse: it hands an answer to whichever request was the last, and loses one that
// follows an answer without rows whenever React draws before a timer of its own has run.
(function () {
    "use strict";
    const waiting = new Map(); // by the table's id: {number, startRow, successCallback} of the request that is under way
    const firsts = new Map(); // by the table's id: the first rows, which came with what they are of
    const marked = new Map(); // by the table's id: the row that is selected once it is there
    let count = 0;

    function mark(id) {
        const row = marked.get(id) && window.dash_ag_grid.getApi(id)?.getRowNode(marked.get(id));
        if (row && !row.isSelected()) row.setSelected(true, true);
    }

    // The row with that id is what the page shows beside the table.
    aotlens.markRow = function (id, row) {
        marked.set(id, row);
        window.dash_ag_grid?.getApiAsync(id).then(() => mark(id));
    };

    aotlens.askRows = function (id, { startRow, endRow, sortModel, context, successCallback }) {
        const number = ++count, first = firsts.get(id);
        waiting.set(id, { number, startRow, successCallback });
        if (first && context && startRow === 0 && !sortModel.length && !context.opened.length) {
            aotlens.takeRows(id, { ...first, number });
            return;
        }
        if (context) return { number, startRow, endRow, sortModel, context };
        aotlens.takeRows(id, null);
    };

    // An answer to another request than the last is late. One that says of none what it answers is an error's.
    aotlens.takeRows = function (id, answer) {
        const request = waiting.get(id);
        if (!request || (answer && answer.number && answer.number !== request.number)) return;
        waiting.delete(id);
        request.successCallback(answer ? answer.rows : [], answer ? answer.count : 0);
        mark(id);
        if (answer && request.startRow === 0) aotlens.fitColumns(window.dash_ag_grid.getApi(id));
    };

    // The rows of `context`, which the server gets with every request; null: of nothing. What was selected is so no longer
    // where the rows are of another `whole`; where only `opened` differs, rows that are unfolded, the place is kept.
    // The `first` rows, {rows, count, filters, hidden}, are not asked for; `hidden` are columns that the table has not.
    aotlens.listRows = function (id, whole, context, first) {
        firsts.set(id, first);
        window.dash_ag_grid.getApiAsync(id).then(function (api) {
            if (!api || api.isDestroyed()) return;
            const before = api.getGridOption("context"), now = context && { ...context, whole, filters: first.filters };
            if (JSON.stringify(before) === JSON.stringify(now)) return;
            if (before && now && JSON.stringify(before.whole) !== JSON.stringify(whole)) api.deselectAll();
            api.setGridOption("context", now);
            const hidden = first ? first.hidden : [];
            const columns = api.getColumns();
            const turned = (shown) => columns.filter((column) => hidden.includes(column.getColId()) !== shown
                && column.isVisible() !== shown).map((column) => column.getColId());
            for (const shown of [true, false]) {
                const names = turned(shown);
                if (names.length) api.setColumnsVisible(names, shown);
            }
            const apart = (context) => JSON.stringify({ ...context, opened: null });
            if (before && now && apart(before) === apart(now)) api.refreshInfiniteCache();
            else api.purgeInfiniteCache();
        });
    };
})();
