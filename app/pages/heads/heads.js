// The Heads page: the widget (aotlens/widget) draws tokens, maps and ranking in the page's panels; here its choices go to
// Dash's stores, and theirs to it. The server is asked for the maps once a text, and for what depends on a choice after the
// frame that shows the choice.
(function () {
    "use strict";
    const PATIENCE = 250; // milliseconds after which Dash hears of Run though there are no maps yet
    const PANELS = ["heads-tokens", "heads-grid", "heads-map"]; // that wait for maps
    const { setProps, closest: within } = aotlens;
    const at = (id) => document.getElementById("heads-" + id);
    const state = { analysis: null, against: null };
    let heads = null, Maps = null;

    const ready = customElements.whenDefined("aotlens-heads").then(function ({ parts }) {
        Maps = parts.LongMaps;
        heads = new parts.Heads({ ask: aotlens.lineOf("/maps"), wait: aotlens.later });
        heads.places = [["strip", parts.Strip], ["grid-cells", parts.Grid], ["ranking", parts.Ranking], ["map-canvas", parts.LargeMap],
            ["map-off-canvas", class extends parts.LargeMap { of = () => heads.without; }], ["losses-whole", parts.Chips], ["losses-change", parts.Chips]];
        heads.addEventListener("choose", () => send({ head: heads.head }));
        heads.addEventListener("off", function () {
            send({ off: heads.off });
            askMaps({ ...asking, off: heads.off }); // now, not when Dash comes to it
        });
        heads.addEventListener("lock", () => lockEntry(heads.cell, null));
        heads.addEventListener("drawn", mark);
    });

    // ── maps, by a route of their own ───────────────────────────────────────────────────────────────────────

    const fetchMaps = aotlens.maps("/maps", (bytes, question) => Object.assign(Maps.of(bytes), { question, askTile: askTile(question) }));
    let asked = 0, asking = null, noticed = false, page = null;

    async function askMaps(chosen) {
        const { prompt, view, off, how, corpus } = asking = chosen;
        const number = ++asked, readable = prompt.text !== undefined && prompt.text.isWellFormed();
        await ready;
        opened();
        aotlens.busy(PANELS, true);
        const question = (run) => aotlens.questionOf("heads", { ...prompt, view, ...run });
        const questions = readable && await Promise.all([question({}), off?.length ? question({ off, how, corpus }) : null]);
        if (number !== asked) return;
        const lesser = questions?.[1] ? fetchMaps(questions[1]) : null;
        const whole = questions ? await fetchMaps(questions[0]) : null;
        if (number !== asked) return; // something else by now
        // A run without other heads stays until the next is there.
        heads.set({ maps: whole?.n ? whole : null, without: lesser && heads.maps === whole ? heads.without : null });
        const without = await lesser;
        if (number !== asked) return;
        aotlens.busy(PANELS, false);
        heads.set({ without: without?.off ? without : null });
        const says = whole?.instead ?? without?.instead ?? null;
        if (page && (says || noticed)) setProps("heads-grid-notice", { children: says });
        noticed = Boolean(page && says);
    }

    // Run asks for the maps of what stands in the box, and Dash hears of the click after the frame that shows them: on its own
    // way there it would walk the page first, while the model waits for the processor.
    let held = null;
    document.addEventListener("click", function (event) {
        const run = within(event.target, "#heads-run"), text = at("text")?.value ?? "";
        const most = Number(document.querySelector("[data-max-characters]")?.dataset.maxCharacters);
        if (!run || held || !asking || text.length > most) return;
        event.stopImmediatePropagation();
        const mine = held = {};
        askMaps({ ...asking, prompt: { ...asking.prompt, text } }).then(() => aotlens.afterFrame(tell));
        const late = aotlens.later(tell, PATIENCE);
        function tell() {
            clearTimeout(late);
            if (held !== mine) return;
            run.dataset.text = text; // what is typed meanwhile is not run
            run.click();
            held = null;
        }
    }, true);

    // A part of a head's map, of a text whose maps do not come whole.
    const askTile = (question) => async function (head, block, row, column) {
        const content = await aotlens.askPart(`/maps/tile?${question}&head=${head.join(".")}&block=${block}&row=${row}&column=${column}`);
        return content && new Uint8Array(content);
    };

    // ── the first picture (first.py) ────────────────────────────────────────────────────────────────────────

    const early = () => document.querySelector(".first .heads");

    async function first() {
        const box = early(), { head, position, cell, direction, hide, ...run } = JSON.parse(box.dataset.choice);
        await ready;
        for (const [id, Part] of heads.places) heads.part(Part, box.querySelector(`[data-part="heads-${id}"]`));
        heads.set({ head: head ?? [0, 0], position, cell, direction, hidesFirst: hide, off: run.off });
        await askMaps(run);
        if (heads.maps && !head) heads.set({ head: heads.maps.head });
        if (heads.maps) await new Promise((done) => heads.addEventListener("drawn", done, { once: true }));
        else box.parentElement.parentElement.remove(); // the page says what is wrong
    }

    // Dash's page is there with the same maps: it takes the place of the first picture, and the focus.
    function takeOver() {
        const focused = document.activeElement, part = focused.closest(".first [data-part]");
        const place = part ? [...part.querySelectorAll("button, canvas")].indexOf(focused) : -1;
        document.querySelector(".first").remove();
        if (place >= 0) document.getElementById(part.dataset.part).querySelectorAll("button, canvas")[place]?.focus();
    }

    // ── choices ─────────────────────────────────────────────────────────────────────────────────────────────

    const DEPENDS = { why: ["head", "position", "cell"], predictions: ["position"] }; // by tab
    const pending = new Map(); // by store: what it will hold once Dash hears of it

    // A choice is drawn and stands in the address and the links at once. Dash hears of it after the frame where a tab that is
    // open depends on it, and else when its reader turns to something else.
    function send(values) {
        for (const [store, data] of Object.entries(values)) pending.set(store, data);
        aotlens.ahead("heads", Object.fromEntries(Object.entries(values).map(([store, data]) => [`heads-${store}.data`, data])));
        const asks = "off" in values || DEPENDS[state.tab]?.some((store) => store in values);
        if (asks) aotlens.afterFrame(tellDash);
    }

    function tellDash() {
        if (!page?.isConnected) return; // Dash has not started
        const all = [...pending];
        pending.clear();
        aotlens.ahead("heads", null);
        for (const [store, data] of all) setProps(`heads-${store}`, { data });
    }

    // The page is opened again, with stores of its own.
    function opened() {
        const columns = at("columns");
        if (page && page !== columns) {
            heads.set({ maps: null, without: null });
            pending.clear();
            aotlens.ahead("heads", null);
        }
        page = columns;
    }

    const CONTROLS = "a, button, input, label, select, summary, textarea, [role=tab], [role=option]";
    for (const kind of ["pointerover", "focusin", "click"]) {
        document.addEventListener(kind, function ({ target }) {
            if (!pending.size || !(target instanceof Element) || !target.closest(CONTROLS)) return;
            if (!heads.places.some(([id]) => at(id)?.contains(target))) tellDash();
        }, true);
    }

    function lockEntry(cell, against, position = heads.position) {
        send({ position, ...(cell || state.cell || against !== state.against ? { cell: { cell, against } } : {}) });
        Object.assign(state, { cell, against });
    }

    // The entry of another head that a line of the explanation leads to; of a path through several, a token of its map.
    function leadOn(link) {
        const place = new URL(link.href).searchParams, pair = (name) => place.get(name)?.split(".").map(Number) ?? null;
        const cell = pair("cell"), direction = place.get("direction") ?? "to";
        aotlens.settle("heads-direction", { value: direction });
        heads.set({ direction, position: Number(place.get("position")), cell });
        heads.choose(...pair("head"));
        lockEntry(cell, null);
        aotlens.openTab("heads-tabs", "map");
    }

    function compareWith(button) {
        const { query, key } = button.parentElement.dataset, { against } = button.dataset;
        heads.set({ cell: [Number(query), Number(key)] });
        lockEntry(heads.cell, /^\d+$/.test(against) ? Number(against) : against);
    }

    // ── what the page says beside the widget ────────────────────────────────────────────────────────────────

    function mark() {
        const columns = at("columns"), { maps, without, motifs, off } = heads, head = heads.head.join(".");
        const reason = maps && (maps.block || String(maps.head) === String(heads.head)) ? maps.reason : "";
        if (!columns) {
            const map = early()?.querySelector(".first-map");
            if (map) [map.querySelector(".panel-title").textContent, map.querySelector(".motifs").textContent] = [`Head ${head}`, reason];
            return;
        }
        const empty = columns.hasAttribute("data-empty"); // drawn without a size
        columns.toggleAttribute("data-empty", !state.analysis);
        columns.toggleAttribute("data-off", off.length > 0);
        const says = document.querySelector("#heads-off-line .off-says");
        if (says) says.textContent = off.length ? `Ablated: ${off.map((pair) => pair.join(".")).join(", ")}` : "No heads ablated";
        const scores = Object.entries(motifs?.scores ?? {}).filter(([, byHead]) => head in byHead);
        const values = scores.map(([motif, byHead]) => `${motif.replaceAll("_", " ")} ${byHead[head].toFixed(2)}`);
        at("map-title").textContent = state.analysis ? `Head ${head}` : "One head";
        at("map-off-title").textContent = state.analysis ? `${head} under ablation` : "Ablation";
        at("motifs-line").textContent = reason || (state.analysis && values.length ? "Motifs on repeated random tokens: " + values.join(", ") : "");
        at("map-off-caption").textContent = without ? without.off + "." : "";
        if (at("why-button")) at("why-button").hidden = !heads.cell;
        if (early() && state.analysis && at("map-canvas").dataset.head) empty ? heads.later() : takeOver();
    }


    document.addEventListener("click", function (event) {
        const against = within(event.target, "#heads-why-body .why-against");
        const link = within(event.target, "#heads-why-pairs a");
        if (within(event.target, "#heads-why-button")) aotlens.openTab("heads-tabs", "why");
        if (against) compareWith(against);
        if (link && !(event.metaKey || event.shiftKey || event.altKey || event.ctrlKey)) {
            event.preventDefault();
            leadOn(link);
        }
    });

    // The key w, but not where somebody types.
    function asksWhy(event) {
        const plain = event.key === "w" && !(event.metaKey || event.altKey || event.ctrlKey);
        return plain && state.analysis && at("columns") && !event.target.closest("input, textarea, select, dialog, [contenteditable=true]");
    }

    document.addEventListener("keydown", (event) => asksWhy(event) && aotlens.openTab("heads-tabs", "why"));

    // A value that Dash has from `show` already starts nothing: each store that is written sets off others. A page that
    // is opened again has new stores, which hold nothing.
    let sent = {};
    function news(name, value, page) {
        if (sent.page !== page) sent = { page };
        const text = JSON.stringify(value ?? null);
        if (sent[name] === text) return window.dash_clientside.no_update;
        sent[name] = text;
        return value;
    }

    // ── what Dash calls ─────────────────────────────────────────────────────────────────────────────────────

    aotlens.page("heads", {
        first,

        askMaps: (chosen) => void askMaps(chosen),

        show: function ({ analysis, head, position, locked, direction, hide, tab, off, how, corpus }) {
            opened();
            const chosen = { head: head ?? heads?.maps?.head ?? [0, 0], position: position ?? null, off: off ?? [], ...Object.fromEntries(pending) };
            chosen.cell = (chosen.cell ?? locked).cell;
            if (analysis !== state.analysis && !heads?.motifs) delete sent.scored; // what could not be scored is asked for again
            Object.assign(state, { analysis, tab, cell: chosen.cell, against: (pending.get("cell") ?? locked).against });
            ready.then(function () {
                for (const [id, Part] of heads.places) heads.part(Part, at(id));
                heads.set({ head: chosen.head, position: chosen.position, cell: chosen.cell, off: chosen.off, direction, hidesFirst: hide });
            });
            const run = analysis && { prompt: analysis.prompt, off: chosen.off, how, corpus };
            // Nothing of a tab that is closed; the locked token counts where no entry is locked.
            const why = analysis && head && tab === "why" ? {
                prompt: analysis.prompt, head: chosen.head, cell: chosen.cell, position: chosen.cell ? null : chosen.position,
                direction, against: state.against, off: chosen.off,
            } : null;
            const scored = news("scored", analysis?.prompt.checkpoint, page);
            if (scored !== window.dash_clientside.no_update) ready.then(() => heads.set({ motifs: null })); // another model's
            return {
                predicted: news("predicted", run && { ...run, position: chosen.position }, page),
                run: news("run", run, page),
                why: news("why", why, page),
                scored,
            };
        },

        // What Back leads to, unless it is another text or view.
        restore: function ({ head = heads.head, position = heads.position, cell = heads.cell, direction = heads.direction, tab, ...rest }) {
            if (Object.keys(rest).length || !page?.isConnected || !Array.isArray(head)) return false;
            heads.set({ head, position, cell, direction });
            Object.assign(state, { cell, against: null });
            send({ head, position, cell: { cell, against: null } });
            aotlens.settle("heads-direction", { value: direction });
            if (tab) aotlens.openTab("heads-tabs", tab);
            return true;
        },

        drawTables: function (tables) {
            for (const [name, data] of Object.entries(tables)) aotlens.drawTables(`heads-${name.replaceAll("_", "-")}`, data);
            ready.then(() => heads.later()); // which marks tokens
        },

        switchAllOn: () => ({ off: [] }),

        showMotifs: ({ motifs, rank }) => void ready.then(() => heads.set({ motifs, rank })),
    });
})();
