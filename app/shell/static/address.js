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

    // A prompt longer than that is kept by the server, and the address says the key (app/shell/own_texts.py).
    const LONGEST = 600;
    const keys = new Map(); // by the text: what an address says of it (null: nothing), or a promise until that is known

    // The server keeps the newest text of each field of a tab.
    const tab = (function () {
        const fresh = Math.random().toString(36).slice(2);
        try {
            const before = sessionStorage.getItem("aotlens-tab");
            if (before === null) sessionStorage.setItem("aotlens-tab", fresh);
            return before ?? fresh;
        } catch (error) {
            return fresh; // storage is forbidden
        }
    })();

    const newest = new Map(); // the text that the server keeps, by field

    function keyOf(text, field) {
        if (!keys.has(text)) {
            keys.delete(newest.get(field));
            newest.set(field, text);
            const headers = { "Content-Type": "text/plain", "X-Owner": `${tab}.${field}` };
            const asked = fetch("/texts", { method: "POST", headers, body: text });
            keys.set(text, aotlens.during(asked).then((answer) => (answer.ok ? answer.text() : null), () => null).then(function (key) {
                keys.set(text, key);
            }));
        }
        return keys.get(text);
    }

    // The promises of keys that an address of these values needs.
    const awaited = (page, values) => Object.entries(addresses[page].fields)
        .filter(([name, field]) => field.prompt && values[name]?.length > LONGEST)
        .map(([name]) => keyOf(values[name], `${page}.${name}`)).filter((key) => key instanceof Promise);

    // What stands in the address; null for nothing.
    function written(value, field) {
        if (value === null || value === undefined) return null;
        if (field.prompt && keys.has(value) && !(keys.get(value) instanceof Promise)) return keys.get(value);
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

    // What goes along from page to page, by the keys of addresses.
    const ALONG = ["checkpoint", "text", "head"];
    const LAST = "aotlens-last";
    const carried = {};

    function remember(page) {
        // Its link's, since the document may have the title of the page before.
        const link = [...document.querySelectorAll(".nav-link")].find(({ href }) => addresses[page].paths.includes(new URL(href).pathname));
        const here = new URLSearchParams(location.search);
        for (const field of ALONG.map((name) => addresses[page].fields[name]).filter(Boolean)) {
            const said = here.get(field.key);
            // A page that opens on a head of its own choice keeps the one that was chosen elsewhere.
            if (said !== null || field.key !== "head") carried[field.key] = said;
        }
        try {
            localStorage.setItem(LAST, JSON.stringify({ href: location.pathname + location.search, title: link?.textContent ?? document.title }));
        } catch (error) {
            // Storage is forbidden: the start page has no view to go back to.
        }
    }

    // A head or a tab that is chosen is a step of Back, at most one a second, where the page's script can go there by itself.
    const STEPS = ["head", "tab"], A_STEP = 1000; // milliseconds
    let shown = null, here = "", stepped = 0; // the page and the address that it shows
    let writes = 0;

    function differing(page, from, to) {
        const [before, after] = [from, to].map((href) => new URLSearchParams(href.split("?")[1]));
        const value = (query, { key, default: usual }) => query.get(key) ?? usual ?? null;
        return Object.entries(addresses[page].fields).flatMap(function ([name, field]) {
            const [old, text] = [before, after].map((query) => value(query, field));
            return old === text ? [] : [{ name, field, old, text }];
        });
    }

    function canStep(page, href) {
        if (!window.aotlens.canRestore(page) || Date.now() - stepped < A_STEP) return false;
        return differing(page, here, href).some(({ name, old, text }) => STEPS.includes(name) && old !== null && text !== null);
    }

    // Before Dash's own listener, which draws the page anew: the address of a step is the page's to show.
    window.addEventListener("popstate", function (event) {
        const page = shown, href = location.pathname + location.search;
        shown = null;
        if (!page || !window.aotlens.canRestore(page) || !addresses[page].paths.includes(location.pathname)) return;
        const changes = Object.fromEntries(differing(page, here, href).map(({ name, field, text }) => [name, read(text, field)]));
        if (!window.aotlens.restore(page, changes)) return;
        event.stopImmediatePropagation();
        shown = page;
        here = href;
        remember(page);
    });

    // The value of a text in an address: whole numbers, or a choice.
    function read(text, { join, default: usual }) {
        const number = (part) => (/^\d+$/.test(part) ? Number(part) : part);
        if (text === null || (usual && !join)) return text;
        const parts = join ? text.split(join).map(number) : [number(text)];
        return parts.length > 1 ? parts : parts[0];
    }

    window.aotlens.address = {
        declare: function (told) { addresses = told; },
        format: format,

        // Until what an address of these values says is known.
        keyed: (page, values) => Promise.all(awaited(page, values)),

        // Not while something that it says isn't known yet, nor when the page has been left meanwhile.
        write: function (page, values) {
            const path = location.pathname.replace(/(.)\/+$/, "$1");
            if (!addresses[page].paths.includes(path) || Object.values(values).includes(undefined)) return;
            const mine = ++writes, keys = awaited(page, values);
            if (keys.length) {
                Promise.all(keys).then(() => { if (mine === writes) window.aotlens.address.write(page, values); });
                return;
            }
            // Not through dcc.Location: setting its search would draw the page anew.
            const href = format(page, values);
            if (shown === page && href === here && href === location.pathname + location.search) return; // it says so already
            const isStep = shown === page && canStep(page, href);
            if (isStep) stepped = Date.now();
            history[isStep ? "pushState" : "replaceState"](history.state, "", href);
            shown = page;
            here = href;
            remember(page);
        },

        // An address with the checkpoint, the text and the head that were chosen last, where its page has them and it names
        // none. `along` tells the server to leave out without a word what cannot be (app/shell/navigation.py).
        along: function (href) {
            const [path, search] = href.split("?"), query = new URLSearchParams(search);
            const page = Object.values(addresses).find(({ paths }) => paths[0] === path);
            for (const field of page ? ALONG.map((name) => page.fields[name]).filter(Boolean) : []) {
                if (carried[field.key] && !query.has(field.key)) query.set(field.key, carried[field.key]);
            }
            if (query.size) query.set("along", "1");
            return query.size ? `${path}?${query}` : path;
        },

        // The view that was open last in this browser: its address and its page's title.
        last: function () {
            try {
                const last = JSON.parse(localStorage.getItem(LAST));
                return last && /^\/[^/]/.test(last.href) ? last : null;
            } catch (error) {
                return null;
            }
        },
    };
})();
