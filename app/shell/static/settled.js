// Whether the page is at rest: <html data-settled> is "false" from a choice on, and "true" once the answer of every panel in
// view is drawn and nothing of that choice is under way. What counts: Dash's callbacks (an interval's, which follows a
// background job, does not), and what scripts hand to `during`, `later` and `afterFrame`.
(function () {
    "use strict";
    const ROOT = document.documentElement, AHEAD = 150; // pixels from the window's edge (waiting.js)
    const STAGES = ["requested", "prioritized", "blocked", "executing", "watched", "executed"];
    const LATE = 100, HEARS = 500; // milliseconds: of a timer that was cleared; that a field may take beyond its `debounce`
    const timers = new Map(), typed = new Map();
    let underWay = 0, isLooking = false, store = null;

    // Of a callback that has no trigger yet, as when a page opens, nothing is known but that it was asked for.
    function counts({ changedPropIds }) {
        const changed = Object.keys(changedPropIds ?? {});
        return !changed.length || changed.some((id) => !id.endsWith(".n_intervals"));
    }

    function calls() {
        const { callbacks } = store.getState();
        return STAGES.some((stage) => callbacks[stage].some((call) => counts(call)));
    }

    function isInView(element) {
        const { top, bottom, left, right } = element.getBoundingClientRect();
        return bottom > -AHEAD && top < innerHeight + AHEAD && right > 0 && left < innerWidth && element.checkVisibility();
    }

    // A field that waits for more typing has not told Dash.
    function isTyped() {
        for (const [field, { id, value, until }] of typed) {
            if (performance.now() > until || !field.isConnected || aotlens.component(id)?.props.value !== value) typed.delete(field);
        }
        return typed.size > 0;
    }

    function isBusy() {
        for (const [timer, due] of timers) if (performance.now() > due + LATE) timers.delete(timer);
        if (underWay || timers.size || !store || !aotlens.hasHeard() || calls() || isTyped()) return true;
        return [...document.querySelectorAll(".panel[aria-busy=true], .dash-graph--pending")].some(isInView);
    }

    // A task after a frame: what the frame has asked for is under way by then.
    function frame(then) {
        requestAnimationFrame(() => setTimeout(then));
    }

    // At rest for two frames: in the first, what is drawn once a frame is drawn, and observers see what is in view now.
    function look(frames) {
        if (isBusy()) frames = 0;
        if (frames < 2) {
            frame(() => look(frames + 1));
            return;
        }
        isLooking = false;
        ROOT.dataset.settled = "true";
    }

    function unsettle() {
        ROOT.dataset.settled = "false";
        if (isLooking) return;
        isLooking = true;
        frame(() => look(0));
    }

    for (const choice of ["pointerdown", "click", "keydown", "input", "change", "scroll", "resize", "popstate"]) {
        window.addEventListener(choice, unsettle, { capture: true, passive: true });
    }

    window.addEventListener("input", function ({ target }) {
        const { props } = aotlens.component(target.id) ?? {};
        if (typeof props?.debounce !== "number") return;
        typed.set(target, { id: target.id, value: props.value, until: performance.now() + props.debounce + HEARS });
    }, true);

    Object.assign(aotlens, {
        unsettle,

        // Dash has started.
        settlesWith: function (dash) {
            store = dash;
            store.subscribe(() => calls() && unsettle());
        },

        // A promise of something that the page shows once it is there.
        during: function (promise) {
            const done = () => { underWay -= 1; };
            underWay += 1;
            unsettle();
            promise.then(done, done);
            return promise;
        },

        // As setTimeout, of what the page does by itself soon.
        later: function (then, milliseconds) {
            const timer = setTimeout(function () {
                timers.delete(timer);
                unsettle();
                then();
            }, milliseconds);
            timers.set(timer, performance.now() + milliseconds);
            unsettle();
            return timer;
        },

        // Once the next frame is drawn.
        afterFrame: (then) => aotlens.during(new Promise(frame)).then(then),
    });
})();
