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

    function pickEntry([row, column], { meta }) {
        pick("row", meta.rows[row], meta.row_names[row]);
        pick("column", meta.columns[column], meta.column_names[column]);
    }

    function pickBlock(block) {
        aotlens.setProps("circuits-block-at", { data: block });
        aotlens.openTab("circuits-besides", "block");
    }

    const PICKED = { map: pickEntry, block: pickEntry, overview: pickBlock };
    let answered = null; // what was shown when somebody asked last

    aotlens.page("circuits", {
        // What is shown already, with what the server has put in the place of what there is not, is not asked for again;
        // nor is, until the server answers, what it was asked for last.
        choose: function ({ shown, chosen, ...values }) {
            const form = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value === "" ? null : value ?? null])); // an emptied field
            const last = chosen && shown === answered ? chosen : shown?.form;
            if (last && Object.keys(form).every((name) => JSON.stringify(form[name]) === JSON.stringify(last[name]))) return;
            answered = shown;
            aotlens.setProps("circuits-chosen", { data: form });
        },

        show: function ({ shown }) {
            const body = document.getElementById("circuits-body");
            if (body) {
                if (shown && !shown.problem) body.removeAttribute("data-problem");
                else body.setAttribute("data-problem", shown ? "circuit" : "");
            }
            for (const [id, props] of Object.entries(shown?.controls ?? {})) aotlens.settle(id, props);
            const link = shown && shown.reads_text ? "button-link" : "button-link hidden";
            return { link, atlas: link };
        },

        list: function ({ singular, ...tables }) {
            for (const [name, data] of Object.entries(tables)) aotlens.drawTables(`circuits-${TABLES[name]}`, data);
            aotlens.draw("circuits-singular-pairs", singular);
        },

        pickHead: function ({ click }) {
            const point = click?.points?.[0];
            if (Array.isArray(point?.customdata)) chooseHead(...point.customdata);
        },

        // The block that is shown is framed in the picture of the whole.
        drawMatrices: function (matrices) {
            for (const [panel, matrix] of Object.entries(matrices)) aotlens.drawMatrix(`circuits-${panel}`, matrix, PICKED[panel]);
            aotlens.markEntry("circuits-overview", matrices.block?.meta.block ?? null);
        },
    });
})();
