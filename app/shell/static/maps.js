// Maps by a route of their own: aotlens.maps(route, of, most) gives what fetches those of a question, once. An answer is
// what `of` makes of the bytes, or {instead}: what the server says instead, or that it did not answer, which is not kept, so
// that the next question asks again.
(function () {
    "use strict";
    const KEPT = 6; // maps of texts and views
    const LONG = 4000; // characters of a text that is asked for by its key, since a request's head has a limit

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

    aotlens.maps = function (route, of, most = KEPT) {
        const kept = new Map(); // by what is asked for: maps that are there or on their way, the newest last

        // What is asked for `ahead` of a choice is nothing that the page waits for.
        return function (question, ahead = false) {
            if (question === null) return Promise.resolve({ instead: "This text is too long to be kept: shorten it." });
            const found = kept.get(question) ?? answer(route, of, question).then(function (maps) {
                if ("instead" in maps) kept.delete(question);
                return maps;
            });
            kept.delete(question);
            kept.set(question, found);
            if (kept.size > most) kept.delete(kept.keys().next().value);
            return ahead ? found : aotlens.during(found);
        };
    };

    // What an address of a page says of `values`; of a long text, once its key is known. Null if the server does not keep it.
    aotlens.questionOf = async function (page, values) {
        const isLong = values.text?.length > LONG;
        if (isLong) await aotlens.address.keyed(page, values);
        const question = aotlens.address.format(page, values).split("?")[1] ?? "";
        return isLong && !new URLSearchParams(question).has("text") ? null : question;
    };

    // A part of what a route has maps of; null where there is none.
    aotlens.askPart = (address) => aotlens.during(fetch(address).then((response) => (
        response.ok && response.headers.get("Content-Type").includes("maps") ? response.arrayBuffer() : null)));

    // What the widget's `Heads` ask: a token's row and column, to the last bit.
    aotlens.lineOf = (route) => async function ({ question }, head, position) {
        const content = await aotlens.askPart(`${route}/line?${question}&head=${head.join(".")}&position=${position}`);
        if (!content) return null;
        const numbers = new Float32Array(content), n = numbers.length / 2;
        return { row: numbers.subarray(0, n), column: numbers.subarray(n) };
    };

    // Until maps are there, nobody shall take those before for them.
    aotlens.busy = function (panels, on) {
        for (const id of panels) {
            const panel = document.getElementById(id);
            if (on) panel?.setAttribute("aria-busy", "true");
            else panel?.removeAttribute("aria-busy");
        }
    };

    // The heads of a page: a promise of the widget's `Heads`, drawn by `parts`, [id, part's name, its options]; and `show`,
    // which gets their maps from `route` by what an address of `page` says of `asked` (null: none), and shows them with what
    // is chosen. The notice of the first of the `panels` says what the server says instead. `kinds` are the widget's heads and
    // maps, if they are others.
    aotlens.headsOf = function ({ route, page, panels, parts, kinds: { Heads = "Heads", Maps = "LongMaps" } = {} }) {
        let number = 0, noticed = false, Part = null;
        const fetchMaps = aotlens.maps(route, (bytes, question) => Object.assign(Part[Maps].of(bytes), { question }));
        const ready = customElements.whenDefined("aotlens-heads").then(function (element) {
            Part = element.parts;
            return new Part[Heads]({ ask: aotlens.lineOf(route), wait: aotlens.later });
        });

        async function show(asked, chosen, places = parts) {
            const mine = ++number, heads = await ready;
            for (const [id, name, options] of places) heads.part(Part[name], document.getElementById(id), options);
            if (asked) aotlens.busy(panels, true);
            const maps = asked && await fetchMaps(await aotlens.questionOf(page, asked));
            if (mine !== number) return null; // something else by now
            aotlens.busy(panels, false);
            const says = maps?.instead ?? null;
            if (says || noticed) aotlens.setProps(`${panels[0]}-notice`, { children: says });
            noticed = Boolean(says);
            heads.set({ ...chosen, maps: maps?.n ? maps : null });
            return heads;
        }

        return Object.assign(ready, { show });
    };
})();
