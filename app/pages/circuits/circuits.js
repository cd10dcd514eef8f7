// The Circuits page between two questions to the server: what is asked for, pick a token or a block, walk to a head.
(function () {
    "use strict";
    const chooseHead = (layer, head) => aotlens.pickHead("circuits-heads", layer, head);

    // The choice's options must hold its value, so both are set at once; the server searches when somebody types.
    function pick(axis, index, label) {
        aotlens.setProps(`circuits-${axis}-choice`, { data: [{ value: String(index), label }], value: String(index) });
        aotlens.openTab("circuits-besides", "lines");
    }

    const picks = {
        row: (index, label) => pick("row", index, label),
        column: (index, label) => pick("column", index, label),
        head: chooseHead,

        // What a pair leads to is said and shown at the page's top.
        through: function (circuit) {
            const { data } = dash_component_api.getLayout("circuits-chosen").props;
            aotlens.setProps("circuits-chosen", { data: { ...data, ...circuit } });
            aotlens.openTab("circuits-views", "map");
            document.getElementById("circuits-choice").scrollIntoView();
        },
    };
    const TABLES = { top: "top-entries", row: "row-entries", column: "column-entries", block: "block-entries",
        composition: "composition-pairs", copying: "copying-heads" };
    for (const table of Object.values(TABLES)) aotlens.onPick(`circuits-${table}`, ([what, ...rest]) => picks[what](...rest));

    const LINES = { rows: "circuits-map-rows", columns: "circuits-map-columns", row: "circuits-row-choice", column: "circuits-column-choice" };

    function pickFromMap(point, { rows, row_names, columns, column_names }, trace) {
        const row = trace.y.indexOf(point.y), column = trace.x.indexOf(point.x);
        if (row < 0 || column < 0) return;
        pick("row", rows[row], row_names[row]);
        pick("column", columns[column], column_names[column]);
    }

    function pickBlock(point, { row_size, column_size }) {
        // A label begins with the first index of its block.
        const block = [parseInt(point.y, 10) / row_size, parseInt(point.x, 10) / column_size];
        if (!block.every(Number.isInteger)) return;
        aotlens.setProps("circuits-block-at", { data: block });
        aotlens.openTab("circuits-besides", "block");
    }

    const plotOf = (panel) => document.querySelector(`#circuits-${panel}-graph .js-plotly-plot`);

    aotlens.page("circuits", {
        // What is shown already, with what the server has put in the place of what there is not, is not asked for again.
        choose: function ({ shown, ...values }) {
            const form = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value ?? null]));
            const same = shown && Object.keys(form).every((name) => JSON.stringify(form[name]) === JSON.stringify(shown.form[name]));
            // Not as an output: what is drawn sets the controls, and Dash would wait for itself in a circle of callbacks.
            if (!same) aotlens.setProps("circuits-chosen", { data: form });
            return { form };
        },

        show: function ({ shown }) {
            const body = document.getElementById("circuits-body");
            if (body) {
                if (shown && !shown.problem) body.removeAttribute("data-problem");
                else body.setAttribute("data-problem", shown ? "circuit" : "");
            }
            for (const [name, { data, value }] of Object.entries((shown && shown.lines) || {})) {
                const now = dash_component_api.getLayout(LINES[name]).props.value ?? null;
                aotlens.setProps(LINES[name], JSON.stringify(now) === JSON.stringify(value) ? { data } : { data, value });
            }
            const link = shown && shown.reads_text ? "button-link" : "button-link hidden";
            return { link, atlas: link };
        },

        list: function ({ singular, ...tables }) {
            for (const [name, data] of Object.entries(tables)) aotlens.drawTables(`circuits-${TABLES[name]}`, data);
            aotlens.draw("circuits-singular-pairs", singular);
        },

        pickFromFigure: function (clicks) {
            const panel = Object.keys(clicks).find((name) => aotlens.triggered() === `circuits-${name}-graph`);
            const point = panel && clicks[panel]?.points?.[0], plot = panel && plotOf(panel);
            if (!point || !plot) return;
            if (panel === "composition") return Array.isArray(point.customdata) && chooseHead(...point.customdata);
            if (panel === "overview") pickBlock(point, plot.layout.meta);
            else pickFromMap(point, plot.layout.meta, plot.data[0]);
        },

        // Around the block that is shown, in the picture of the whole.
        frameBlock: function ({ block }) {
            const at = block && block.layout && block.layout.meta && block.layout.meta.block;
            requestAnimationFrame(function () {
                const plot = plotOf("overview");
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
    });
})();
