// Columns of tables as wide as what is in them (app/shell/tables.py): numbers are never cut, headers break between words.
// Where there is room left, all widen alike; where there is too little, the table scrolls. A column with a `flex` of its
// own takes what is left, and wraps. A width that somebody has dragged stays.
(function () {
    "use strict";
    const PADDING = 18, SORTED = 18; // pixels beside a header's word, and of the arrow of a sorted column
    const PATIENCE = 300; // frames
    const due = new WeakSet();
    const pen = document.createElement("canvas").getContext("2d");

    function longestWord(header) {
        pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
        return Math.max(0, ...String(header || "").split(/\s+/).map((word) => pen.measureText(word).width));
    }

    // React draws cells some frames after the grid has its rows.
    function drawn(api) {
        const root = document.querySelector(`.ag-root-wrapper[grid-id="${api.getGridId()}"]`);
        return !api.getDisplayedRowCount() || (root && root.querySelector(".ag-row .ag-cell:not(:empty)"));
    }

    function fit(api, patience) {
        if (!api.isDestroyed() && patience && !drawn(api)) {
            requestAnimationFrame(() => fit(api, patience - 1));
            return;
        }
        due.delete(api);
        if (api.isDestroyed()) return;
        const { left, right } = api.getHorizontalPixelRange();
        const columns = api.getAllDisplayedColumns().filter((column) => !column.getFlex());
        if (right - left <= 0 || !columns.length) return; // in a tab that is closed, or folded
        api.autoSizeColumns({ colIds: columns.map((column) => column.getColId()), skipHeader: true });
        const widths = columns.map(function (column) {
            const { headerName } = column.getColDef();
            const header = headerName ? longestWord(headerName) + PADDING + (column.getSort() ? SORTED : 0) : 0;
            return Math.ceil(Math.max(column.getActualWidth(), header));
        });
        const flexible = api.getAllDisplayedColumns().length > columns.length;
        const total = widths.reduce((sum, width) => sum + width, 0);
        const more = flexible ? 1 : Math.max(1, (right - left) / total);
        api.setColumnWidths(columns.map((column, at) => (
            { key: column.getColId(), newWidth: Math.floor(more * widths[at]) }
        )));
    }

    // Once what is to be shown is drawn.
    aotlens.fitColumns = function (api) {
        if (due.has(api)) return;
        due.add(api);
        requestAnimationFrame(() => requestAnimationFrame(() => fit(api, PATIENCE)));
    };

    window.dashAgGridFunctions = Object.assign({}, window.dashAgGridFunctions, { fitColumns: aotlens.fitColumns });
})();
