// Panels that are asked for when they are seen (app/shell/sharing.py, `when_seen`). A panel names in data-follows the store
// that says what its page shows. What that is goes on to the panel's own store, which its callbacks listen to, only once the
// panel is in view (one with data-always: wherever it is); until the answer is there, the panel is marked aria-busy, so that nobody reads what was there before.
(function () {
    "use strict";
    const AHEAD = "150px"; // from the window's edge: what is about to be scrolled to
    const PATIENCE = 1200; // frames
    const states = new WeakMap(); // by the panel's element: {seen, asked, wanted}, the last two as JSON

    function update(panel) {
        const state = states.get(panel);
        if (state.wanted === undefined) return;
        const store = panel.id + "-seen";
        const isAsked = state.seen || (state.seen === false && "always" in panel.dataset); // all of a page at once
        if (isAsked && state.asked !== state.wanted && aotlens.component(store)) { // not of a page that is being left
            state.asked = state.wanted;
            aotlens.setProps(store, { data: JSON.parse(state.wanted) });
        }
    }

    const observer = new IntersectionObserver(function (entries) {
        for (const { target, isIntersecting } of entries) {
            states.get(target).seen = isIntersecting;
            update(target);
        }
    }, { rootMargin: AHEAD });

    // What the store holds without the fields that do not concern the panel (data-leaves).
    function concerning({ dataset }, shown) {
        if (!dataset.leaves || !shown) return shown;
        const left = new Set(dataset.leaves.split(" "));
        return Object.fromEntries(Object.entries(shown).filter(([field]) => !left.has(field)));
    }

    const given = new Map(); // by store: what it holds

    // The store `id` holds something else, or a tab opens that follows it. Its panels may not be in the document yet.
    aotlens.passOn = function (id, shown, patience = (shown ?? null) === null ? 0 : PATIENCE) {
        given.set(id, shown);
        const panels = document.querySelectorAll(`[data-follows="${id}"]`);
        if (!panels.length && patience) {
            requestAnimationFrame(() => given.get(id) === shown && aotlens.passOn(id, shown, patience - 1));
        }
        for (const panel of panels) {
            if (!states.has(panel)) {
                states.set(panel, {});
                observer.observe(panel);
            }
            const state = states.get(panel);
            state.wanted = JSON.stringify(concerning(panel, shown ?? null));
            if (state.asked === state.wanted) continue;
            panel.setAttribute("aria-busy", "true");
            update(panel);
        }
    };

    // A callback of the server's has answered (Dash's hook `callback_resolved`, app/shell/app.py). A panel's callback
    // reads its store and says what went wrong in its notice; of two questions, the later one's answer counts.
    aotlens.resolved = function ({ output }, { payload }) {
        if (output === "page.children") aotlens.forget();
        if (!payload) return;
        for (const { id, value } of payload.inputs.flat()) {
            const name = id.endsWith && id.endsWith("-seen") && id.slice(0, -"-seen".length);
            if (!name || !output.includes(`${name}-notice.children`)) continue;
            const answer = JSON.stringify(value ?? null);
            whenDrawn(() => done(name, answer));
        }
    };

    // Dash has taken the answer in by then, React has drawn it, and so have the page's own functions.
    function whenDrawn(then) {
        aotlens.afterFrame(() => (aotlens.hasHeard() ? then() : whenDrawn(then)));
    }

    function done(id, answer) {
        const panel = document.getElementById(id), state = panel && states.get(panel);
        if (state && answer === state.asked && state.asked === state.wanted) panel.removeAttribute("aria-busy");
    }
})();
