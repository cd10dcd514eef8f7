// The Checkpoints page: which row is chosen, and the address.
window.dash_clientside = Object.assign({}, window.dash_clientside, {
    checkpoints: {
        choose: function (rows, before) {
            const name = rows && rows.length && rows[0].name;
            if (!name || name === before) return dash_clientside.no_update;
            if (location.pathname === "/checkpoints") {
                const query = new URLSearchParams({ checkpoint: name });
                history.replaceState(history.state, "", "/checkpoints?" + query.toString());
            }
            return name;
        },
    },
});
