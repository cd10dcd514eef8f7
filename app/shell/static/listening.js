// Functions that are no callbacks of Dash's (app/shell/browser.py): each is called when something that it reads in Dash's
// store is something else. Dash itself would walk the page for every one of them, at each step of each callback.
(function () {
    "use strict";
    let listeners = [], store = null, layout = null, waiting = false, current = null, opened = false;

    // Undefined where there is no such component now.
    function component(id) {
        const { paths, layout } = store.getState(), path = paths.strs[id];
        return path && path.reduce((tree, key) => tree?.[key], layout);
    }

    // The values of all places; null where a component is missing, as those of other pages are.
    function read(places) {
        const values = [];
        for (const [id, prop] of places) {
            const found = component(id);
            if (!found) return null;
            values.push(found.props[prop]);
        }
        return values;
    }

    function call(listener) {
        const answers = listener.run(...listener.before, ...read(listener.state)); // which another may have set just now
        const all = listener.outputs.length === 1 ? [answers] : answers ?? [];
        listener.outputs.forEach(function ([id, prop], place) {
            const answer = all[place], found = component(id);
            if (found && answer !== undefined && answer !== dash_clientside.no_update && answer !== found.props[prop]) {
                aotlens.setProps(id, { [prop]: answer });
            }
        });
    }

    function look() {
        waiting = false;
        layout = store.getState().layout;
        for (const listener of listeners) {
            const values = read(listener.state) && read(listener.inputs), before = listener.before;
            const changed = values && listener.inputs.find((_, place) => !before || values[place] !== before[place]);
            listener.before = values;
            if (!changed || (!before && !listener.first)) continue;
            current = before ? changed[0] : null;
            try {
                call(listener);
            } catch (error) {
                console.error(error);
            }
            current = null;
        }
    }

    Object.assign(aotlens, {
        // What `Wiring.script` says; the functions are tied by now.
        listeners: (told) => (listeners = told.map((listener) => ({ ...listener, run: dash_clientside[listener.call[0]][listener.call[1]], before: null }))),

        // Dash has started.
        listen: function () {
            if (store) return;
            [store] = window.dash_stores;
            store.subscribe(function () {
                if (waiting || store.getState().layout === layout) return;
                waiting = true;
                queueMicrotask(look); // once for all that one answer sets, after React and in the same frame
            });
            aotlens.settlesWith(store);
        },

        // Whether no function is about to be called.
        hasHeard: () => !waiting,

        // Another page takes the place of this one, or the same: all of it is new.
        forget: function () {
            for (const listener of listeners) listener.before = null;
            if (opened) aotlens.nothingAhead(); // but for choices in the first picture
            opened = true;
        },

        // The id of the component for which a function is called.
        triggered: function () {
            if (current !== null) return current;
            const { triggered } = dash_clientside.callback_context ?? { triggered: [] };
            return triggered.length ? triggered[0].prop_id.split(".")[0] : null;
        },
    });
})();
