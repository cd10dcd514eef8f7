// Dash's renderer tells every component of the page of each of its steps, and a choice has a hundred of them: which callback
// is asked for, runs, has answered. Here they are told of these once a frame, and at once of what changes the layout, which
// the next callback may look at, and of what somebody types, since React puts back what it has not heard of. What Dash does
// itself at each step, by its observers, stays as it is: they listen before the store is known.
(function () {
    "use strict";
    const LATE = 100; // milliseconds: tabs that nobody sees have no frames

    function byFrame(store) {
        const subscribe = store.subscribe, waiting = new Set();
        let paths = null, frame = 0, late = 0;

        function tell() {
            cancelAnimationFrame(frame);
            clearTimeout(late);
            frame = late = 0;
            paths = store.getState().paths;
            const listeners = [...waiting];
            waiting.clear();
            for (const listener of listeners) listener();
        }

        function hear(listener) {
            waiting.add(listener);
            if (store.getState().paths !== paths || ["input", "change"].includes(window.event?.type)) tell();
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
