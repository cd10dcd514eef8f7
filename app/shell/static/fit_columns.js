// Columns of tables as wide as what is in them (app/shell/tables.py): numbers are never cut, headers break between words.
// Where there is room left, all widen alike; where there is too little, the table scrolls. A column with a `flex` of its
// own takes what is left, and wraps. A width that somebody has dragged stays. And tables are no taller than their rows.
(function () {
    "use strict";
    const PADDING = 18, SORTED = 18; // pixels beside a word of a header or a cell's text, and of the arrow of a sorted column
    const PATIENCE = 300; // frames
    const SETTLED_MS = 400, ATTEMPTS = 5;
    const due = new WeakSet(), attempts = new WeakMap(), settled = new WeakSet();
    const pen = document.createElement("canvas").getContext("2d");

    const rootOf = (api) => document.querySelector(`.ag-root-wrapper[grid-id="${api.getGridId()}"]`);

    const fontOf = (api) => getComputedStyle(rootOf(api).querySelector(".ag-header-cell-text") || document.body).font;

    function longestWord(header) {
        return Math.max(0, ...String(header || "").split(/\s+/).map((word) => pen.measureText(word).width));
    }

    // How wide the texts of the drawn cells are, by column, on a canvas: asking for the cells' own widths lays the whole
    // page out once for every column. Digits are as wide as the widest, as in columns of numbers.
    function textWidths(root) {
        const widths = new Map(), fonts = new Map();
        for (const cell of root.querySelectorAll(".ag-row .ag-cell")) {
            const id = cell.getAttribute("col-id"), kind = `${id} ${cell.className}`;
            if (!fonts.has(kind)) fonts.set(kind, getComputedStyle(cell).font);
            pen.font = fonts.get(kind);
            const width = pen.measureText(cell.textContent.replace(/\d/g, "0")).width;
            widths.set(id, Math.max(widths.get(id) || 0, width));
        }
        return widths;
    }

    // React draws cells some frames after the grid has its rows.
    function drawn(api) {
        const root = rootOf(api);
        return !api.getDisplayedRowCount() || (root && root.querySelector(".ag-row .ag-cell:not(:empty)"));
    }

    function again(api) {
        if (attempts.get(api) >= ATTEMPTS) return;
        attempts.set(api, (attempts.get(api) || 0) + 1);
        aotlens.fitColumns(api);
    }

    function fit(api, patience) {
        if (!api.isDestroyed() && patience && !drawn(api)) {
            (rootOf(api)?.checkVisibility() ? aotlens.afterFrame : requestAnimationFrame)(() => fit(api, patience - 1));
            return;
        }
        due.delete(api);
        if (api.isDestroyed() || !rootOf(api)) return;
        const { left, right } = api.getHorizontalPixelRange();
        const columns = api.getAllDisplayedColumns().filter((column) => !column.getFlex());
        if (right - left <= 0 || !columns.length) return; // in a tab that is closed, or folded
        const texts = textWidths(rootOf(api)), font = pen.font = fontOf(api);
        const widths = columns.map(function (column) {
            const { headerName } = column.getColDef();
            const header = headerName ? longestWord(headerName) + (column.getSort() ? SORTED : 0) : 0;
            const width = Math.ceil(Math.max(texts.get(column.getColId()) || 0, header) + PADDING);
            return Math.max(width, column.getMinWidth()); // the grid refuses all widths where one is less
        });
        const flexible = api.getAllDisplayedColumns().length > columns.length;
        const total = widths.reduce((sum, width) => sum + width, 0);
        const more = flexible ? 1 : Math.max(1, (right - left) / total);
        const fitted = columns.map((column, at) => ({ key: column.getColId(), newWidth: Math.floor(more * widths[at]) }));
        api.setColumnWidths(fitted.filter(({ newWidth }, at) => newWidth !== columns[at].getActualWidth()));
        shorten(api);
        // A grid that is new puts off what it is told to size, and its styles may come after its first rows.
        if (settled.has(api)) return;
        aotlens.later(function () {
            if (api.isDestroyed() || !rootOf(api)) return;
            const kept = columns.every((column, at) => column.getActualWidth() === fitted[at].newWidth);
            if (!kept || fontOf(api) !== font) again(api);
            else settled.add(api);
        }, SETTLED_MS);
    }

    // Where all rows are known, the table ends under the last one, or is as tall as the page says.
    function shorten(api) {
        const root = rootOf(api), table = root && root.closest(".table[id]"), count = api.getDisplayedRowCount();
        if (!table) return;
        const long = api.getGridOption("rowModelType") === "infinite"; // whose last row would be asked for, and is as high
        const last = long || !count ? null : api.getDisplayedRowAtIndex(count - 1);
        const bottom = long ? count * api.getGridOption("rowHeight") : last && last.rowTop + last.rowHeight;
        const known = long ? count && api.isLastRowIndexKnown() : last && last.rowTop !== null;
        const around = ["ag-header", "ag-body-horizontal-scroll"].reduce(
            (sum, part) => sum + (root.querySelector(`.${part}`)?.offsetHeight || 0), 2);
        table.style.maxHeight = known ? `${Math.ceil(bottom + around)}px` : "";
    }

    // Once what is to be shown is drawn.
    aotlens.fitColumns = function (api) {
        if (due.has(api)) return;
        due.add(api);
        aotlens.afterFrame(() => requestAnimationFrame(() => fit(api, PATIENCE)));
    };

    // A table whose rows come with the page has drawn them before anybody listens to its events.
    new MutationObserver(function (changes) {
        for (const change of changes) {
            for (const added of change.addedNodes) {
                if (!(added instanceof Element)) continue;
                const roots = [added, ...added.querySelectorAll(".ag-root-wrapper")];
                for (const root of roots.filter((element) => element.matches(".ag-root-wrapper"))) {
                    const table = root.closest(".table[id]");
                    if (table) dash_ag_grid.getApiAsync(table.id).then(aotlens.fitColumns);
                }
            }
        }
    }).observe(document, { subtree: true, childList: true });

    window.dashAgGridFunctions = Object.assign({}, window.dashAgGridFunctions, { fitColumns: aotlens.fitColumns });
})();
