// When the server has stopped, a notice (app/shell/frame.py) says so, and what the page asks waits until it is back: no
// answer is lost, and the console is not filled with requests that can't succeed. Where a server that asks for a token was
// started again, another notice leads to its sign-in, and from there back to this address.
(function () {
    "use strict";
    const HEALTH = "/healthz";
    const FIRST = 2000, MOST = 60000; // milliseconds from one look to the next; each waits twice as long as the one before
    const send = window.fetch.bind(window);
    const waiting = new Map(); // by the outputs of a callback: what lets its request go on, when the server is back
    let gone = false, leaving = false, wait = FIRST, timer = null, looking = null;

    // The response; or null if the server did not answer, or a proxy says that it did not.
    async function ask(input, init) {
        try {
            const response = await send(input, init);
            return [502, 503, 504].includes(response.status) ? null : response;
        } catch (error) {
            // A page that is left drops what it asked.
            if (leaving || error.name === "AbortError") throw error;
            return null;
        }
    }

    // The server knows this browser no longer: its link leads back to what the address says by then.
    function signIn() {
        const notice = document.getElementById("signed-out");
        if (notice) notice.hidden = false;
    }

    function show(on) {
        gone = on;
        const notice = document.getElementById("connection");
        if (notice) notice.hidden = !on;
    }

    // Is it there? Everybody who wants to know meanwhile gets the same answer.
    function look() {
        looking = looking || ask(HEALTH, { cache: "no-store" }).then(function (response) {
            clearTimeout(timer);
            show(!response);
            if (response) {
                wait = FIRST;
                const all = [...waiting.values()];
                waiting.clear();
                all.forEach((resolve) => resolve(true));
            } else {
                timer = setTimeout(() => document.hidden || look(), wait);
                wait = Math.min(2 * wait, MOST);
            }
        }).finally(() => { looking = null; });
        return looking;
    }

    const outputsOf = (init) => typeof init?.body === "string" ? JSON.parse(init.body).output : Symbol("not a callback");

    // True when it may go; false when the same has been asked again meanwhile.
    function turn(name) {
        waiting.get(name)?.(false);
        return new Promise((resolve) => waiting.set(name, resolve));
    }

    // The answer; null where it is not wanted any more, or the server does not know this browser.
    async function answer(input, init) {
        for (let tries = 0; tries < 3; tries++) {
            if (gone && !(await turn(outputsOf(init)))) return null;
            const response = await ask(input, init);
            if (response && response.status === 401) {
                signIn();
                return null;
            }
            if (response) return response;
            await look();
        }
        throw new TypeError("The server is there, but does not answer this.");
    }

    window.fetch = async function (input, init) {
        if (!/\/_dash-|\/maps[/?]/.test(input.url || input)) return send(input, init);
        return (await answer(input, init)) ?? new Response(null, { status: 204 }); // which Dash reads as "no change"
    };

    function lookAgain() {
        if (!gone || document.hidden) return;
        wait = FIRST;
        look();
    }

    // Whoever has started it again comes back to this window.
    window.addEventListener("focus", lookAgain);
    window.addEventListener("online", lookAgain);
    document.addEventListener("visibilitychange", lookAgain);
    document.addEventListener("click", function (event) {
        if (!(event.target instanceof Element)) return;
        if (event.target.closest("#connection button")) lookAgain();
        const link = event.target.closest("#signed-out a");
        if (link) link.href = "/sign-in?next=" + encodeURIComponent(location.pathname + location.search);
    });
    for (const name of ["beforeunload", "pagehide"]) window.addEventListener(name, () => { leaving = true; });
    window.addEventListener("pageshow", () => { leaving = false; });
})();
