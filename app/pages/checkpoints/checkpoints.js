// The Checkpoints page: which row is chosen.
aotlens.page("checkpoints", {
    choose: function ({ rows, chosen }) {
        const name = rows && rows.length && rows[0].name;
        return name && name !== chosen ? { chosen: name } : {};
    },
});
