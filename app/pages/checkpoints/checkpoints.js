// The Checkpoints page: its tables, and which row is chosen.
aotlens.page("checkpoints", {
    list: function ({ chosen, rows, tensors }) {
        aotlens.onPick("checkpoints-table", ({ checkpoint }) => aotlens.settle("checkpoints-chosen", { data: checkpoint }));
        aotlens.drawTables("checkpoints-table", rows);
        aotlens.markRows("checkpoints-table", { checkpoint: chosen });
        aotlens.drawTables("checkpoints-tensors", tensors);
    },
});
