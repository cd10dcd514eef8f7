// Maps by a route of their own: aotlens.maps(route, of, most) gives what fetches those of a question, once. An answer is
// what `of` makes of the bytes, or {instead}: what the server says instead, or that it did not answer, which is not kept, so
// that the next question asks again.
(function () {
    "use strict";

    async function answer(route, of, question) {
        try {
            const response = await fetch(`${route}?${question}`);
            const kind = (response.ok && response.headers.get("Content-Type")) || "";
            if (kind.includes("maps")) return of(new Uint8Array(await response.arrayBuffer()), question);
            if (kind.includes("json")) return { instead: await response.json() };
            if (response.status === 204) return { instead: null }; // the page says it elsewhere
            return { instead: `The maps could not be fetched (${response.status}). Choose or run again to ask again.` };
        } catch (error) {
            return { instead: "The maps could not be fetched: there was no answer. Choose or run again to ask again." };
        }
    }

    window.aotlens.maps = function (route, of, most) {
        const kept = new Map(); // by what is asked for: maps that are there or on their way, the newest last

        return function (question) {
            const found = kept.get(question) ?? answer(route, of, question).then(function (maps) {
                if ("instead" in maps) kept.delete(question);
                return maps;
            });
            kept.delete(question);
            kept.set(question, found);
            if (kept.size > most) kept.delete(kept.keys().next().value);
            return found;
        };
    };
})();
