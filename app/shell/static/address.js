// Addresses, from the one declaration of each page (app/core/address.py): `format` gives one, `write` puts it into the
// browser's bar.
(function () {
    "use strict";
    let addresses = {};

    function plain(value, field) {
        if (Array.isArray(value)) return value.join(field.inner);
        if (typeof value !== "number" || !field.digits) return String(value);
        return String(Number(value.toPrecision(field.digits)));
    }

    // What stands in the address; null for nothing.
    function written(value, field) {
        if (value === null || value === undefined) return null;
        let text;
        if (field.word) text = value ? field.word : "";
        else if (Array.isArray(value)) text = value.map((part) => plain(part, field)).join(field.join);
        else text = plain(value, field);
        return text === "" && !field.blank ? null : text;
    }

    function format(page, values) {
        const address = addresses[page];
        const query = new URLSearchParams();
        for (const [name, field] of Object.entries(address.fields)) {
            const text = written(values[name], field);
            if (text !== null && text !== field.default) query.set(field.key, text);
        }
        const search = query.toString();
        return address.paths[0] + (search ? "?" + search : "");
    }

    window.aotlens.address = {
        declare: function (told) { addresses = told; },
        format: format,

        // Not while something that it says isn't known yet, nor when the page has been left meanwhile.
        write: function (page, values) {
            const path = location.pathname.replace(/(.)\/+$/, "$1");
            if (!addresses[page].paths.includes(path) || Object.values(values).includes(undefined)) return;
            // Not through dcc.Location: setting its search would draw the page anew.
            history.replaceState(history.state, "", format(page, values));
        },
    };
})();
