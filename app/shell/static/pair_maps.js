// Two runs next to each other (app/shell/pair_maps.py): the widget (aotlens/widget) draws a head's map of each, their difference
// and the pairs of heads. The server is asked for a run's maps once. Selecting heads, pointing and locking ask it nothing.
(function () {
    "use strict";
    const SIDES = ["left", "right"], MAPS = [...SIDES, "difference"], NONE = [], KEPT = 8; // maps of runs and quantities
    const at = (selector) => document.querySelector(`.view-page ${selector}`);
    const canvasOf = (side) => at(`.pair-maps [data-side=${side}]`), panelOf = (side) => canvasOf(side).closest(".panel").id;
    const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
    const named = (head) => head.join(".");
    let both = null, parts = null, state = {}, asked = "", failed = false, number = 0;

    const ready = customElements.whenDefined("aotlens-heads").then(function (element) {
        parts = element.parts;
        both = new parts.SideBySide();
        both.addEventListener("lock", function ({ detail: { side, position } }) {
            const field = side === "right" && !both.aligned ? "other_position" : "position";
            aotlens.choose(aotlens.pageOf(), { [field]: position, ...(both.aligned ? { other_position: null } : {}) });
        });
        both.addEventListener("pair", ({ detail: { left, right } }) => aotlens.choose(aotlens.pageOf(), { head: left, other_head: right, tab: "maps" }));
    });

    // ── maps, by a route of their own ───────────────────────────────────────────────────────────────────────

    let fetchMaps = null;
    const modelOf = (shown, side) => shown[`${side}_model`] ?? shown.left_model;
    const textOf = (shown, side) => (side === "right" && shown.other) || shown.text;

    // A run, as the route is asked for it: as that of a left pane.
    function runOf(shown, side) {
        const ablated = shown[side] ?? [], ablation = ablated.length ? { left: ablated, how: shown.how, corpus: shown.corpus } : {};
        return { left_model: modelOf(shown, side), text: textOf(shown, side), quantity: shown.quantity, ...ablation };
    }

    async function askMaps(shown) {
        const page = aotlens.pageOf(), runs = SIDES.map((side) => runOf(shown, side)), panels = MAPS.map(panelOf);
        if (asked === JSON.stringify(runs)) return;
        asked = JSON.stringify(runs);
        const mine = ++number;
        aotlens.busy(panels, true);
        await ready;
        fetchMaps ??= aotlens.maps(`/${page}/maps`, (bytes, question) => Object.assign(parts.Maps.of(bytes), { question }), KEPT);
        const answers = await Promise.all(runs.map(async (run) => fetchMaps(await aotlens.questionOf(page, run))));
        if (mine !== number) return; // something else by now
        aotlens.busy(panels, false);
        const [left, right] = answers.map((maps) => (maps.n ? maps : null));
        failed = !left || !right;
        SIDES.forEach((side, place) => aotlens.settle(`${panelOf(side)}-notice`, { children: answers[place].instead ?? null }));
        Object.assign(state, { left, right, of: asked });
        draw();
    }

    // ── a pair of heads ─────────────────────────────────────────────────────────────────────────────────────

    const within = (head, maps) => (!maps || (head[0] < maps.layers && head[1] < maps.heads) ? head : [0, 0]);

    // All pairs as the list shows them: the same ones as long as nothing has changed.
    let listed = { of: [], pairs: [] };
    function pairsOf(isOne, left, matched) {
        const of = [isOne, isOne && left?.layers, isOne && left?.heads, matched];
        if (of.every((each, place) => each === listed.of[place])) return listed.pairs;
        const own = isOne && left ? Array.from({ length: left.layers * left.heads }, (_, place) => [Math.floor(place / left.heads), place % left.heads]) : [];
        listed = { of, pairs: [
            ...own.map((head) => ({ left: head, right: head, label: named(head), tip: `Head ${named(head)}` })),
            ...matched.filter((pair) => pair.matched).map(({ left: one, right: two, similarity }) => ({
                left: one, right: two, label: `${named(one)} · ${named(two)}  ${similarity.toFixed(2)}`,
                tip: `Head ${named(one)} and head ${named(two)}: similarity ${similarity.toFixed(3)}`,
            })),
        ] };
        return listed.pairs;
    }

    // Shows the selected pair, once the maps of what is selected are there; maps and words change in one frame.
    function draw() {
        const { shown, runs, pairs, left, right } = state;
        if (!both || !shown || !canvasOf("left") || state.of !== asked) return;
        const models = SIDES.map((side) => modelOf(shown, side)), of = [...models, ...SIDES.map((side) => textOf(shown, side))];
        const places = same(runs?.of, of) ? runs.places : NONE, aligned = places.length > 0 && runs.aligned;
        const matched = same(pairs?.of, models) ? pairs.pairs : NONE, one = within(shown.head ?? [0, 0], left);
        const match = matched.find((pair) => same(pair.left, one)), two = shown.other_head ?? match?.right ?? within(one, right);
        for (const side of MAPS) both.panes[side].part(parts.LargeMap, canvasOf(side));
        if (at(".pairs")) both.panes.left.part(parts.PairGrid, at(".pairs"));
        const next = { left, right, places: places.length ? places : null, pairs: pairsOf(models[0] === models[1], left, matched), hidesFirst: shown.first === "hide", aligned };
        const isDrawn = same(both.heads, [one, two]) && Object.entries(next).every(([name, value]) => both[name] === value);
        if (!isDrawn) both.set({ ...next, heads: [one, two] });
        lock(shown, aligned);
        const { largestEntry: [value, query, key] = [] } = both.panes.difference.maps ?? {};
        tell("left", `Left: ${named(one)}`, "");
        tell("right", `Right: ${named(two)}`, same(match?.right, two) ? match.says : "");
        tell("difference", null, value === undefined ? "" : value === 0
            ? "No entry differs: the pattern of a head depends on what earlier layers write, and there is no difference before this one."
            : `Head ${named(two)} at the right − head ${named(one)} at the left: largest difference ${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(3)}, query ${query}, key ${key}.`);
        SIDES.forEach((side, place) => link(side, shown, [one, two][place]));
    }

    // Locked tokens, of those that the texts have.
    function lock(shown, aligned) {
        if (!state.left || !state.right) return;
        const fits = (field, maps) => (shown[field] !== null && shown[field] < maps.n ? shown[field] : null);
        const left = fits("position", state.left), right = aligned ? left : fits("other_position", state.right);
        for (const [side, position] of [["left", left], ["right", right], ["difference", left]]) {
            if (both.panes[side].position !== position) both.lock(side, position);
        }
        const other = aligned ? null : right;
        if (shown.position !== left || shown.other_position !== other) aotlens.choose(aotlens.pageOf(), { position: left, other_position: other });
    }

    // Not by Dash, which takes some milliseconds for each. A caption is bold, as what panels find is (`graph.finding_first`).
    function tell(side, title, caption) {
        for (const [id, text, tag] of [[`${panelOf(side)}-title`, title, "span"], [`${panelOf(side)}-caption`, caption, "strong"]]) {
            const element = document.getElementById(id), words = Object.assign(document.createElement(tag), { textContent: text });
            if (element && text !== null && element.textContent !== text) element.replaceChildren(...(text ? [words] : []));
        }
    }

    function link(side, shown, head) {
        const { position } = both.panes[side], { quantity: view, how, corpus } = shown, off = shown[side] ?? [];
        const href = aotlens.address.format("heads", { checkpoint: modelOf(shown, side), text: textOf(shown, side), head, position, view, off, how, corpus });
        const open = document.getElementById(`${panelOf(side)}-open`);
        if (open.getAttribute("href") !== href) open.setAttribute("href", href);
    }

    aotlens.page("pairMaps", {
        show: function ({ shown, runs, pairs }) {
            if (state.page !== at(".pair-maps")) { // the page is opened again
                [state, asked] = [{ page: at(".pair-maps") }, ""];
                number += 1;
            }
            if (failed && shown !== state.shown) asked = ""; // another choice asks again
            Object.assign(state, { shown, runs, pairs });
            if (!shown?.left_model) return;
            askMaps(shown);
            ready.then(draw);
        },

        drawStrips: function (strips) {
            for (const side of SIDES) {
                const box = at(`.tokens-${side}`); // whose shading is the server's
                aotlens.drawTables(box.id, strips[side]);
                ready.then(() => both.panes[side].part(parts.Chips, box));
            }
        },
    });
})();
