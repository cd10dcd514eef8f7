// Dash's renderer tells every component of the page of each of its steps, and a choice has a hundred of them: which callback
// is asked for, runs, has answered. Here components are told once a frame, of all that has happened until then. At once are
// told those of new elements, which callbacks may look for, and of what somebody types, since React puts back what it has
// not heard of. What Dash does itself at each step, by its observers, stays as it is: they listen before the store is known.
(function () {
    "use strict";
    const LATE = 100; // milliseconds: tabs that nobody sees have no frames

    function byFrame(store) {
        const subscribe = store.subscribe, waiting = new Set();
        let known = { strs: {} }, frame = 0, late = 0;

        function mountsNew() {
            const { paths } = store.getState(), before = known;
            if (!paths || paths === before) return false;
            known = paths;
            return Object.keys(paths.strs).some((id) => !(id in before.strs));
        }

        function tell() {
            cancelAnimationFrame(frame);
            clearTimeout(late);
            frame = late = 0;
            const listeners = [...waiting];
            waiting.clear();
            for (const listener of listeners) listener();
        }

        function hear(listener) {
            waiting.add(listener);
            if (mountsNew() || ["input", "change"].includes(window.event?.type)) tell();
            else if (!frame) {
                frame = requestAnimationFrame(tell);
                late = setTimeout(tell, LATE);
            }
        }

        store.subscribe = function (listener) {
            const unsubscribe = subscribe(() => hear(listener));
            return function () {
                waiting.delete(listener);
                unsubscribe();
            };
        };
    }

    // Dash keeps its stores here, each from when it is made, which is before React listens to it.
    const stores = [];
    stores.push = function (store) {
        byFrame(store);
        return Array.prototype.push.call(this, store);
    };
    window.dash_stores = stores;
})();
