// The Circuits page between two questions to the server: pick a token or a block, walk to a head.
(function () {
    "use strict";
    const chooseHead = ([layer, head]) => aotlens.pickHead("circuits-heads", layer, head);

    // The choice's options must hold its value, so both are set at once; the server searches when somebody types.
    function pick(id, index, label) {
        aotlens.setProps(id, { data: [{ value: String(index), label: label }], value: String(index) });
        aotlens.openTab("circuits-besides", "lines");
    }

    const recordOf = (click, rows) => (click && rows && rows.find((row) => row.key === click.rowId)) || null;
    const pointOf = (click) => (click && click.points && click.points[0]) || null;

    // A click's point and what the figure says of its rows and columns; nothing where either is missing.
    function pointAndMeta(click, figure) {
        const point = pointOf(click), meta = figure && figure.layout && figure.layout.meta;
        return point && meta ? [point, meta] : [];
    }

    aotlens.page("circuits", {
        show: function ({ shown }) {
            const body = document.getElementById("circuits-body");
            if (body) {
                if (shown && !shown.problem) body.removeAttribute("data-problem");
                else body.setAttribute("data-problem", shown ? "circuit" : "");
            }
            const link = shown && shown.reads_text ? "button-link" : "button-link hidden";
            return { link, atlas: link };
        },

        pickFromTable: function ({ click, rows }) {
            const record = recordOf(click, rows);
            if (!record) return;
            if (click.colId !== "column_shown") pick("circuits-row-choice", record.row, record.row_name);
            if (click.colId !== "row_shown") pick("circuits-column-choice", record.column, record.column_name);
        },

        pickFromMap: function ({ click, figure }) {
            const [point, meta] = pointAndMeta(click, figure);
            if (!point) return;
            const trace = figure.data[0];
            const row = trace.y.indexOf(point.y), column = trace.x.indexOf(point.x);
            if (row < 0 || column < 0) return;
            pick("circuits-row-choice", meta.rows[row], meta.row_names[row]);
            pick("circuits-column-choice", meta.columns[column], meta.column_names[column]);
        },

        pickBlock: function ({ click, figure }) {
            const [point, meta] = pointAndMeta(click, figure);
            if (!point) return;
            // A label begins with the first index of its block.
            const block = [parseInt(point.y, 10) / meta.row_size, parseInt(point.x, 10) / meta.column_size];
            if (block.every(Number.isInteger)) {
                aotlens.setProps("circuits-block-at", { data: block });
                aotlens.openTab("circuits-besides", "block");
            }
        },

        // Around the block that is shown, in the picture of the whole.
        frameBlock: function ({ block }) {
            const at = block && block.layout && block.layout.meta && block.layout.meta.block;
            requestAnimationFrame(function () {
                const plot = document.querySelector("#circuits-overview-graph .js-plotly-plot");
                if (!plot || !plot.data || !plot.data.length || !window.Plotly || !at) return;
                const color = getComputedStyle(plot).getPropertyValue("--lock");
                const [row, column] = at;
                // A pixel of the whole is too small to see: the frame keeps some distance.
                const [high, wide] = [0.5 + plot.data[0].y.length / 60, 0.5 + plot.data[0].x.length / 60];
                window.Plotly.relayout(plot, { shapes: [{
                    type: "rect", line: { width: 1.5, color: color },
                    x0: column - wide, x1: column + wide, y0: row - high, y1: row + high,
                }] });
            });
        },

        walk: function ({ click }) {
            const point = pointOf(click);
            if (point && Array.isArray(point.customdata)) chooseHead(point.customdata);
        },

        walkFromTable: function ({ click, rows }) {
            const record = recordOf(click, rows);
            if (!record) return;
            if (click.colId === "mode" && record.through) {
                aotlens.setProps("circuits-through", { data: record.through });
                // What it leads to is said and shown there.
                aotlens.openTab("circuits-views", "map");
                document.getElementById("circuits-choice").scrollIntoView();
            } else if (Array.isArray(record.goto)) {
                chooseHead(record.goto);
            }
        },
    });
})();
