// How pages' scripts are tied to Dash's callbacks (app/shell/browser.py): each function gets its values by name, and
// names what it changes. `aotlens` is all that our scripts share.
(function () {
    "use strict";
    const scripts = {};

    function named(names, values) {
        return Object.fromEntries(names.map((name, index) => [name, values[index]]));
    }

    function answer(outputs, given) {
        if (!outputs.length) return undefined;
        const all = outputs.map((name) => (given && name in given ? given[name] : dash_clientside.no_update));
        return all.length === 1 ? all[0] : all;
    }

    // A store that holds nothing is nothing; what it should hold, but doesn't yet, is undefined.
    function at(values, [place, ...keys]) {
        if (!keys.length) return values[place] ?? null;
        return keys.reduce((value, key) => (value === null || value === undefined ? undefined : value[key]), values[place]);
    }

    const ahead = {}; // by page and input ("heads-head.data"): what it will hold
    const again = {}; // by page: writes its address and its links anew

    function tie(wire, page) {
        if (wire.run) {
            const [script, name] = wire.run;
            const run = scripts[script] && scripts[script][name];
            if (!run) console.error(`${script}.js has no function ${name}`);
            return (...values) => answer(wire.outputs, run(named(wire.inputs, values)));
        }
        const gathered = ({ sources, always }, values) => ({
            ...Object.fromEntries(Object.entries(sources).map(([field, ways]) => {
                const parts = ways.map((way) => at(values, way));
                return [field, parts.length === 1 ? parts[0] : parts.includes(undefined) ? undefined : parts];
            })),
            ...always,
        });
        let last = null;
        function say() {
            const values = last.map((value, place) => (wire.inputs[place] in (ahead[page] ?? {}) ? ahead[page][wire.inputs[place]] : value));
            if (wire.write) return window.aotlens.address.write(wire.write.target, gathered(wire.write, values));
            return wire.links.map((link) => window.aotlens.address.format(link.target, gathered(link, values)));
        }
        (again[page] ??= []).push(function (isAddress) {
            if (!last || isAddress === Boolean(wire.to)) return;
            const hrefs = say();
            wire.to?.forEach((id, place) => document.getElementById(id)?.setAttribute("href", hrefs[place]));
        });
        return function (...values) {
            last = values;
            const hrefs = say();
            return hrefs?.length === 1 ? hrefs[0] : hrefs;
        };
    }

    window.aotlens = {
        // A page's functions: `aotlens.page("heads", { show({ shown }) { … } })`.
        page: function (name, functions) { scripts[name] = functions; },

        wire: function (told) {
            window.aotlens.address.declare(told.addresses);
            const tied = {};
            for (const [page, wires] of Object.entries(told.callbacks)) {
                const functions = Object.fromEntries(Object.entries(wires).map(([label, wire]) => [label, tie(wire, page)]));
                tied[page] = Object.assign({}, (window.dash_clientside || {})[page], functions);
            }
            window.dash_clientside = Object.assign({}, window.dash_clientside, tied);
            aotlens.listeners(told.listeners);
        },

        // What a page draws by itself before Dash has started (`Page.first`); a promise.
        first: (box) => scripts[box.dataset.page].first(box),

        // What inputs of a page will hold, { "heads-head.data": [1, 0] }: its address says so at once, though Dash has not
        // heard. Without values Dash hears of it now, and until it has answered the page's links are written here.
        ahead: function (page, values) {
            if (values) ahead[page] = { ...ahead[page], ...values };
            for (const say of again[page] ?? []) say(Boolean(values));
            if (!values) delete ahead[page];
        },

        // Pages are opened anew, with what their addresses say.
        nothingAhead: () => Object.keys(ahead).forEach((page) => delete ahead[page]),

        // Of an address that Back leads to: whether the page's script has set what differs in it (`restore`).
        canRestore: (page) => Boolean(scripts[page]?.restore),
        restore: (page, changes) => scripts[page].restore(changes),

        setProps: (id, props) => dash_clientside.set_props(id, props),

        // The Dash component of an id; nothing if the page has none, as of Mantine's own elements. Dash looks inside a path
        // that is not there while a page is being left.
        component: function (id) {
            try {
                return dash_component_api.getLayout(id);
            } catch (error) {
                return undefined;
            }
        },

        // The element of a target of an event, or around it; null if there is none.
        closest: (target, selector) => (target instanceof Element ? target.closest(selector) : null),

        element: function (name, properties, ...children) {
            const made = Object.assign(document.createElement(name), properties);
            made.append(...children);
            return made;
        },

        // Sets those of a component's properties that are others now: whatever is set is rendered anew.
        settle: function (id, props) {
            const now = aotlens.component(id).props, same = (name) => JSON.stringify(now[name] ?? null) === JSON.stringify(props[name] ?? null);
            const changed = Object.entries(props).filter(([name]) => !same(name));
            if (changed.length) aotlens.setProps(id, Object.fromEntries(changed));
        },
    };
})();
