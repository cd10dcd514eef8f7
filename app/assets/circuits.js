// The Circuits page between two questions to the server: pick a token or a block, walk to a head, write the address.
(function () {
    "use strict";
    const setProps = (id, props) => dash_clientside.set_props(id, props);
    const chooseHead = (layer, head) => dash_clientside.pickHeads.choose("circuits-heads", layer, head);

    // What the server found is all shown: it has searched by rules of its own (aotlens' `Labels.search`).
    window.dashMantineFunctions = Object.assign({}, window.dashMantineFunctions, {
        keepAll: ({ options }) => options,
    });

    // ── rows and columns ────────────────────────────────────────────────────────────────────────────────────

    // The choice's options must hold its value, so both are set at once; the server searches when somebody types.
    function pick(id, index, label) {
        setProps(id, { data: [{ value: String(index), label: label }], value: String(index) });
    }

    function recordOf(click, rows) {
        if (!click || !rows) return null;
        return rows.find((row) => row.key === click.rowId) || null;
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        circuits: {
            // From a head on the Heads page to its circuits. The text goes along, for the way back.
            link: function (prompt, head) {
                const query = new URLSearchParams();
                if (prompt && prompt.checkpoint) query.set("checkpoint", prompt.checkpoint);
                if (head) query.set("head", head.join("."));
                if (prompt && !prompt.length) query.set("text", prompt.text);
                return "/circuits?" + query.toString();
            },

            show: function (circuit, asked) {
                const body = document.getElementById("circuits-body");
                if (body) {
                    if (circuit && !circuit.problem) body.removeAttribute("data-problem");
                    else body.setAttribute("data-problem", circuit ? "circuit" : "");
                }
                if (!circuit) return ["/heads", "button-link hidden"];
                const query = new URLSearchParams({ checkpoint: circuit.checkpoint });
                if (asked && asked.text !== null && asked.text !== undefined) query.set("text", asked.text);
                query.set("head", circuit.layer + "." + circuit.head);
                return ["/heads?" + query.toString(), circuit.reads_text ? "button-link" : "button-link hidden"];
            },

            pickFromTable: function (click, rows) {
                const record = recordOf(click, rows);
                if (!record) return;
                if (click.colId !== "column_shown") pick("row-choice", record.row, record.row_name);
                if (click.colId !== "row_shown") pick("column-choice", record.column, record.column_name);
            },

            pickFromMap: function (click, figure) {
                const point = click && click.points && click.points[0];
                const meta = figure && figure.layout && figure.layout.meta;
                if (!point || !meta) return;
                const trace = figure.data[0];
                const row = trace.y.indexOf(point.y), column = trace.x.indexOf(point.x);
                if (row < 0 || column < 0) return;
                pick("row-choice", meta.rows[row], meta.row_names[row]);
                pick("column-choice", meta.columns[column], meta.column_names[column]);
            },

            pickBlock: function (click, figure) {
                const point = click && click.points && click.points[0];
                const meta = figure && figure.layout && figure.layout.meta;
                if (!point || !meta) return;
                // A label begins with the first index of its block.
                const block = [parseInt(point.y, 10) / meta.row_size, parseInt(point.x, 10) / meta.column_size];
                if (block.every(Number.isInteger)) setProps("circuits-block", { data: block });
            },

            // Around the block that is shown, in the picture of the whole.
            frameBlock: function (block, overview) {
                const at = block && block.layout && block.layout.meta && block.layout.meta.block;
                requestAnimationFrame(function () {
                    const plot = document.querySelector("#overview-graph .js-plotly-plot");
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

            walk: function (click) {
                const point = click && click.points && click.points[0];
                if (point && Array.isArray(point.customdata)) chooseHead(point.customdata[0], point.customdata[1]);
            },

            walkFromTable: function (click, rows) {
                const record = recordOf(click, rows);
                if (record && Array.isArray(record.goto)) chooseHead(record.goto[0], record.goto[1]);
            },

            writeAddress: function (circuit, rows, columns, row, column, statistic, block, z, asked) {
                if (location.pathname !== "/circuits" || !circuit) return;
                const query = new URLSearchParams({ checkpoint: circuit.checkpoint });
                query.set("head", circuit.layer + "." + circuit.head);
                if (circuit.kind !== "qk") query.set("kind", circuit.kind);
                if (circuit.left !== "tokens") query.set("left", circuit.left);
                if (circuit.right !== (circuit.kind === "qk" ? "tokens" : "logits")) query.set("right", circuit.right);
                if (circuit.biases) query.set("biases", "with");
                if (rows && rows.length) query.set("rows", rows.join("-"));
                if (columns && columns.length) query.set("columns", columns.join("-"));
                if (row) query.set("row", row);
                if (column) query.set("column", column);
                if (statistic !== "extreme") query.set("blocks", statistic);
                if (block) query.set("block", block.join("."));
                if (Number.isInteger(z) && z !== 5) query.set("z", z);
                if (asked && asked.text !== null && asked.text !== undefined) query.set("text", asked.text);
                history.replaceState(history.state, "", "/circuits?" + query.toString());
            },
        },
    });
})();
