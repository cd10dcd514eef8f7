// The Compare page: the widget (aotlens/widget) draws both panes' maps and their difference; the server is asked for the runs,
// and for a pane's maps once a run. Choosing heads, pointing and locking ask it nothing.
(function () {
    "use strict";
    const { setProps } = aotlens;
    const SIDES = ["left", "right"];
    const PANELS = ["compare-left-map", "compare-right-map", "compare-difference"]; // that wait for maps
    const KEPT = 8; // maps of runs and quantities
    const at = (id) => document.getElementById("compare-" + id);
    const named = (head) => head.join(".");
    const numbered = (name) => name.split(".").map(Number);
    const state = { shown: null, matched: null, head: null, other: null, page: null, maps: "" };
    let both = null, Maps = null, parts = null;

    const ready = customElements.whenDefined("aotlens-heads").then(function (element) {
        parts = element.parts;
        Maps = parts.Maps;
        both = new parts.SideBySide();
        both.addEventListener("lock", ({ detail: { side, position } }) => lock(side, position));
        both.addEventListener("pair", ({ detail }) => pick(named(detail.left), named(detail.right)));
        for (const side of SIDES) both.panes[side].addEventListener("drawn", () => markTokens(side));
    });

    // ── maps, by a route of their own ───────────────────────────────────────────────────────────────────────

    const fetchMaps = aotlens.maps("/compare/maps", (bytes, question) => Object.assign(Maps.of(bytes), { question }), KEPT);
    let asked = 0;

    const needs = (how) => document.querySelector("[data-needs-corpus]").dataset.needsCorpus.split(" ").includes(how);

    async function askMaps({ shown, view, how, corpus }) {
        const questions = SIDES.map(function (side) {
            const { checkpoint, text, off } = shown[side], ways = off.length ? { left_off: off, how, ...(needs(how) ? { corpus } : {}) } : {};
            return aotlens.address.format("compare", { left: checkpoint, text, view, ...ways }).split("?")[1];
        });
        if (state.maps === questions.join()) return;
        state.maps = questions.join();
        const number = ++asked;
        aotlens.busy(PANELS, true);
        await ready;
        const answers = await Promise.all(questions.map((question) => fetchMaps(question)));
        if (number !== asked) return; // something else by now
        aotlens.busy(PANELS, false);
        const [left, right] = answers.map((answer) => answer.n ? answer : null);
        if (!left || !right) state.maps = ""; // the next choice asks again
        const { aligned, places } = shown;
        both.set({ left, right, aligned, places: places.length ? places : null });
        choose();
        SIDES.forEach((side, number) => send(`compare-${side}-map-notice`, { children: answers[number].instead ?? null }));
    }

    // ── a pair of heads ─────────────────────────────────────────────────────────────────────────────────────

    const there = (head, { layers, heads }) => head[0] < layers && head[1] < heads ? head : [0, 0];
    const matching = () => state.matched && state.matched.key === state.shown.key ? state.matched : null;

    // The right head: chosen, or the one that the left head is matched with, or else the one of its number.
    function pair() {
        const { shown, head, other } = state, left = there(head, shown.left);
        if (other) return [left, there(other, shown.right)];
        const match = matching()?.pairs.find((each) => named(each.left) === named(left));
        return [left, match ? match.right : there(left, shown.right)];
    }

    function lineOf(left, right) {
        const { shown, other } = state, [one, two] = [named(left), named(right)], match = matching();
        const same = shown.one_model && one === two, names = same ? ["It", "It"] : [`Head ${one}`, `Head ${two}`];
        const also = SIDES.map((side, number) => shown[side].off.some((each) => named(each) === [one, two][number]) ? ` ${names[number]} is ablated at the ${side}.` : "").join("");
        if (same) return `Head ${one} of both panes.${also}`;
        const found = match?.pairs.find((each) => named(each.left) === one);
        if (found && named(found.right) === two) return found.says + also;
        const index = (head, side) => head[0] * shown[side].heads + head[1];
        const alike = match ? ` (similarity ${match.similarity[index(left, "left")][index(right, "right")].toFixed(2)})` : "";
        if (shown.one_model || other) return `Head ${one} beside head ${two}, as chosen${alike}.${also}`;
        return `Head ${one} beside head ${two}, which need not be alike. ${shown.unmatched ?? "The heads of the two models are being matched."}${also}`;
    }

    // To Dash, what it does not hold already.
    let sent = {};
    function send(id, props) {
        const text = JSON.stringify(props);
        if (sent[id] !== text) setProps(id, props);
        sent[id] = text;
    }

    // Not by Dash, which takes some milliseconds for each.
    function tell(id, text) {
        const element = at(id);
        if (element && element.textContent !== text) element.textContent = text;
    }

    // All pairs, as the grid shows them; the same list for the same panes.
    let listed = { of: "", pairs: [] };
    function pairsOf({ key, one_model: one, left: { layers, heads } }, match) {
        const of = [key, Boolean(match)].join();
        if (listed.of === of) return listed.pairs;
        const pairs = one
            ? Array.from({ length: layers * heads }, (_, place) => [Math.floor(place / heads), place % heads])
                .map((head) => ({ left: head, right: head, label: named(head), tip: `Head ${named(head)}` }))
            : (match?.pairs ?? []).filter(({ matched }) => matched).map(({ left, right, similarity }) => ({
                left, right, label: `${named(left)} · ${named(right)}  ${similarity.toFixed(2)}`,
                tip: `Head ${named(left)} and head ${named(right)}: similarity ${similarity.toFixed(3)}`,
            }));
        listed = { of, pairs };
        return pairs;
    }

    // Shows the selected pair; its maps and its words change in one frame, and Dash hears of it after that.
    function choose() {
        const { shown } = state;
        if (!shown || !both || !at("left-canvas")) return;
        const [left, right] = pair();
        for (const side of ["left", "right", "difference"]) both.panes[side].part(parts.LargeMap, at(`${side}-canvas`));
        if (at("gallery")) both.panes.left.part(parts.PairGrid, at("gallery"));
        both.set({ heads: [left, right], pairs: pairsOf(shown, matching()), hidesFirst: state.hides });
        requestAnimationFrame(function () {
            if (state.shown !== shown) return; // something else by now
            aotlens.afterFrame(() => state.shown === shown && send("compare-pair", { data: { left, right } }));
            tell("left-map-title", `Left: ${named(left)}`);
            tell("right-map-title", `Right: ${named(right)}`);
            tell("pair-line", lineOf(left, right));
            const { maps } = both.panes.difference;
            tell("difference-caption", maps && maps.isZero
                ? "No entry differs: the pattern of a head depends on what earlier layers write, and there is no difference before this one."
                : shown.says);
        });
    }

    // Nothing is shown of panes that could not be run: the form says why.
    function clear() {
        state.maps = "";
        asked += 1;
        aotlens.busy(PANELS, false);
        ready.then(() => both.set({ left: null, right: null }));
        for (const [id, text] of [["left-map-title", "Left"], ["right-map-title", "Right"], ["pair-line", ""], ["difference-caption", ""]]) tell(id, text);
    }

    function pick(left, right) {
        setProps("compare-head", { value: left });
        setProps("compare-other-head", { value: right });
        aotlens.openTab("compare-tabs", "maps");
    }

    // ── tokens, whose shading is the server's ───────────────────────────────────────────────────────────────

    const strips = { left: "compare-strip", right: "compare-other-strip" };

    function lock(side, position) {
        const { positions } = state, aligned = state.shown?.aligned;
        state.positions = aligned ? { left: position, right: position } : { ...positions, [side === "right" ? side : "left"]: position };
        state.positions.own = aligned ? null : state.positions.right;
        setProps("compare-positions", { data: state.positions });
    }

    function markTokens(side) {
        const { position, pointed: { cell, position: here } } = both.panes[side];
        const pointed = cell ?? (here === null ? [] : [here]);
        for (const chip of document.getElementById(strips[side])?.children ?? []) {
            const number = Number(chip.dataset.position), pressed = String(number === position);
            chip.classList.toggle("chip-here", pointed.includes(number));
            chip.classList.toggle("chip-locked", number === position);
            if (chip.getAttribute("aria-pressed") !== pressed) chip.setAttribute("aria-pressed", pressed);
        }
    }

    const chipOf = (target) => target instanceof Element ? target.closest(".compare .strip .chip") : null;
    const paneOf = (chip) => both.panes[chip.parentElement.id === strips.right ? "right" : "left"];
    const point = ({ target }) => both && chipOf(target) && paneOf(chipOf(target)).point({ position: Number(chipOf(target).dataset.position) });
    document.addEventListener("mouseover", point);
    document.addEventListener("focusin", (event) => event.target.matches?.(":focus-visible") && point(event));
    for (const left of ["mouseout", "focusout"]) document.addEventListener(left, ({ target }) => both && chipOf(target) && paneOf(chipOf(target)).point());

    document.addEventListener("click", ({ target }) => chipOf(target) && paneOf(chipOf(target)).lock(Number(chipOf(target).dataset.position)));

    document.addEventListener("keydown", function (event) {
        const chip = chipOf(event.target);
        if (chip && event.key === "Escape") paneOf(chip).release();
        else if (chip) aotlens.moveChip(event, chip);
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.id === "compare-other") {
            event.preventDefault();
            at("run").click();
        }
    });

    // ── what Dash calls ─────────────────────────────────────────────────────────────────────────────────────

    const sayOff = (off) => off && off.length ? `Ablated: ${off.map(named).join(", ")}` : "No heads ablated";
    const triggered = () => dash_clientside.callback_context.triggered.map(({ prop_id }) => prop_id);

    // The text of a box, or its length where that is too long to send: the server then answers with the limit.
    function textOf(id, most) {
        const box = at(id), text = box ? box.value : "";
        return text.length > most ? { text: null, length: text.length } : { text, length: null };
    }

    // Heads that can be chosen of a pane, and those locked tokens that its text has.
    function offer(shown, given) {
        for (const [side, id, first] of [["left", "head", "0.0"], ["right", "other-head", null]]) {
            const { layers, heads } = shown[side], value = given[id === "head" ? "head" : "other_head"];
            const data = Array.from({ length: layers * heads }, (_, place) => `${Math.floor(place / heads)}.${place % heads}`);
            setProps(`compare-${id}`, value && !data.includes(value) ? { data, value: first } : { data });
        }
        const fits = (side) => state.positions[side] < shown[side].size && (!state.shown || state.shown[side].size === shown[side].size) ? state.positions[side] ?? null : null;
        const left = fits("left"), right = shown.aligned ? left : fits("right"), before = JSON.stringify(state.positions);
        state.positions = { left, right, own: shown.aligned ? null : right };
        ready.then(() => Object.entries(both.panes).forEach(([name]) => both.lock(name, name === "right" ? right : left)));
        if (JSON.stringify(state.positions) !== before) setProps("compare-positions", { data: state.positions });
    }

    aotlens.page("compare", {
        preset: function ({ left, right, left_off, right_off, head }) {
            const by = aotlens.triggered();
            if (by === "compare-swap") return { left: right, right: left, left_off: right_off, right_off: left_off };
            const own = by === "compare-preset-off", { left: one, right: other } = document.getElementById(by).dataset;
            const off = own ? [numbered(head || "0.0")] : [];
            return { left: own ? left : one, right: own ? left : other, left_off: [], right_off: off };
        },

        submit: function (given) {
            const { left, right, example, another, panes } = given;
            const changed = triggered(), byExample = changed.includes("compare-example.value");
            if (byExample && !example && changed.length === 1) return {};
            if (example && byExample) at("text").value = example;
            const most = Number(document.querySelector(".compare[data-max-characters]").dataset.maxCharacters);
            const text = textOf("text", most), other = another ? textOf("other", most) : null;
            const off = {};
            for (const side of SIDES) {
                // Another checkpoint has other heads, unless a preset says which of them are ablated.
                const isNew = given[side] !== panes[side].checkpoint && !changed.includes(`compare-${side}-off.data`);
                off[`${side}_off`] = isNew ? [] : given[`${side}_off`] || [];
            }
            const next = {
                left: { checkpoint: left, off: off.left_off }, right: { checkpoint: right, off: off.right_off },
                text: text.text, length: text.length, other: other && (other.text ?? ""), other_length: other && other.length,
                right_text: other ? other.text : text.text, how: given.how, corpus: given.corpus,
            };
            const boxes = {
                other_box: another ? "" : "hidden", corpus_box: needs(given.how) ? "" : "hidden",
            };
            const cleared = byExample && example ? { text: example, example: null } : {};
            const same = JSON.stringify(next) === JSON.stringify({ ...next, ...panes });
            return { ...boxes, ...off, ...cleared, ...(same && !changed.includes("compare-run.n_clicks") ? {} : { panes: next }) };
        },

        sayOff: ({ left_off, right_off }) => ({ left: sayOff(left_off), right: sayOff(right_off) }),

        show: function ({ shown, head, other_head, view, hide, panes, positions }) {
            if (state.page !== at("form")) { // the page is opened again
                Object.assign(state, { page: at("form"), shown: null, matched: null, maps: "", positions: positions || {} });
                sent = {};
            }
            const isNew = shown && shown.key !== state.shown?.key;
            if (isNew) offer(shown, { head, other_head });
            Object.assign(state, { shown, head: numbered(head || "0.0"), other: other_head ? numbered(other_head) : null, hides: hide });
            document.querySelector(".compare").toggleAttribute("data-empty", !shown);
            if (shown) {
                if (isNew) {
                    at("pairs")?.toggleAttribute("data-always", !shown.one_model && !shown.unmatched);
                    aotlens.passOn("compare-panes", panes);
                }
                askMaps({ shown, view, how: panes.how, corpus: panes.corpus });
                ready.then(choose);
            } else clear();
        },

        showMatched: function ({ matched }) {
            state.matched = matched;
            ready.then(choose);
        },

        showLosses: function ({ strip, other }) {
            aotlens.draw("compare-strip", strip);
            aotlens.draw("compare-other-strip", other);
            ready.then(() => requestAnimationFrame(() => SIDES.forEach(markTokens)));
        },

        pickFromTable: function ({ click }) {
            const point = click && click.points && click.points[0];
            if (point) pick(String(point.y), String(point.x));
        },
    });
})();
