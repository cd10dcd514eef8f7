// The Compare page between two questions to the server: presets, what is submitted, one hover and one lock in all maps.
(function () {
    "use strict";
    const { setProps } = aotlens;
    const state = { shown: null, pair: null, positions: { left: null, right: null } };
    const element = (id) => document.getElementById(id);

    // ── the maps ────────────────────────────────────────────────────────────────────────────────────────────

    const maps = {
        left: aotlens.headMap("compare-left-map"), right: aotlens.headMap("compare-right-map"),
        difference: aotlens.headMap("compare-difference"),
    };
    const strips = { left: "compare-strip", right: "compare-other-strip" };
    const aligned = () => Boolean(state.shown && state.shown.aligned);
    const sideOf = (name) => name === "difference" ? "left" : name;

    // A map may still be of another text or head.
    function fits(side) {
        return (map) => state.shown && state.pair && map.key === state.shown[side].key
            && state.pair[side].join() === [map.layer, map.head].join();
    }

    maps.left.fits = fits("left");
    maps.right.fits = fits("right");
    maps.difference.fits = (map) => state.shown && state.pair
        && map.key === `${state.shown.key}-${state.pair.right.join(".")}` && state.pair.left.join() === [map.layer, map.head].join();

    for (const [name, map] of Object.entries(maps)) {
        map.drawn = () => frame(name);
        map.pointed = (at) => point(name, at);
    }

    function frame(name) {
        maps[name].frame(state.positions[sideOf(name)], true);
    }

    // An entry of one map, pointed at: the same entry of the others, and its query and key among the tokens.
    function point(name, at) {
        for (const [other, map] of Object.entries(maps)) if (other !== name) map.mark(aligned() ? at : null);
        paint(sideOf(name), at ? [at.row, at.column] : []);
    }

    // A token, pointed at: its row in the maps of its pane, or of both.
    function pointToken(side, position) {
        const at = position === null ? null : { row: position };
        for (const [name, map] of Object.entries(maps)) map.mark(aligned() || name === side ? at : null);
        paint(side, position === null ? [] : [position]);
    }

    // ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────

    // Panes of the same tokens have one strip.
    function paint(side, pointed) {
        for (const [name, id] of Object.entries(strips)) {
            const box = element(id);
            if (!box) continue;
            for (const chip of box.children) {
                const position = Number(chip.dataset.position);
                chip.classList.toggle("chip-here", (name === side || aligned()) && pointed.includes(position));
                chip.classList.toggle("chip-locked", position === state.positions[name]);
                chip.setAttribute("aria-pressed", String(position === state.positions[name]));
            }
        }
    }

    function lock(side, position) {
        const both = aligned() ? { left: position, right: position } : { ...state.positions, [side]: position };
        state.positions = { ...both, own: aligned() ? null : both.right };
        paint(side, []);
        Object.keys(maps).forEach(frame);
        setProps("compare-positions", { data: state.positions });
    }

    function chipOf(target) {
        const chip = target instanceof Element ? target.closest(".compare .strip .chip") : null;
        return chip && { chip, side: chip.parentElement.id === strips.right ? "right" : "left", position: Number(chip.dataset.position) };
    }

    let hovered = null;

    document.addEventListener("mouseover", function ({ target }) {
        const found = chipOf(target), chip = found && found.chip;
        if (chip === hovered) return;
        if (found) pointToken(found.side, found.position);
        else if (hovered) pointToken("left", null);
        hovered = chip;
    });

    document.addEventListener("focusin", function ({ target }) {
        const found = chipOf(target);
        if (found && found.chip.matches(":focus-visible")) pointToken(found.side, found.position);
    });

    document.addEventListener("focusout", ({ target }) => chipOf(target) && pointToken("left", null));

    // Marks lie over the window, where the maps were.
    document.addEventListener("scroll", () => Object.values(maps).forEach((map) => map.mark(null)), true);

    document.addEventListener("click", function ({ target }) {
        const found = chipOf(target);
        if (found) lock(found.side, state.positions[found.side] === found.position ? null : found.position);
        const pair = target instanceof Element && target.closest("#compare-gallery .pair");
        if (pair) pick(pair.dataset.left, pair.dataset.right);
    });

    document.addEventListener("keydown", function (event) {
        const found = chipOf(event.target);
        const pair = event.target instanceof Element && event.target.closest("#compare-gallery .pair");
        if (found && event.key === "Escape") lock(found.side, null);
        else if (found || pair) aotlens.moveChip(event, found ? found.chip : pair);
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.id === "compare-other") {
            event.preventDefault();
            element("compare-run").click();
        }
    });

    // ── pairs ───────────────────────────────────────────────────────────────────────────────────────────────

    function pick(left, right) {
        setProps("compare-head", { value: left });
        setProps("compare-other-head", { value: right });
        aotlens.openTab("compare-tabs", "maps");
    }

    function markPair() {
        const { left, right } = state.pair || { left: [], right: [] };
        for (const pair of document.querySelectorAll("#compare-gallery .pair")) {
            const here = pair.dataset.left === left.join(".") && pair.dataset.right === right.join(".");
            pair.setAttribute("aria-pressed", String(here));
        }
    }

    // Everything that hangs on what is chosen or locked.
    function mark() {
        requestAnimationFrame(function () {
            paint("left", []);
            markPair();
            Object.keys(maps).forEach(frame);
        });
    }

    // ── what Dash calls ─────────────────────────────────────────────────────────────────────────────────────

    const names = (off) => (off || []).map((head) => head.join(".")).join(", ");
    const sayOff = (off) => (off && off.length ? `Without ${names(off)}` : "All heads on");
    const triggered = () => dash_clientside.callback_context.triggered.map(({ prop_id }) => prop_id);

    // The text of a box, or its length where that is too long to send: the server then answers with the limit.
    function textOf(id, most) {
        const box = element(id), text = box ? box.value : "";
        return text.length > most ? { text: null, length: text.length } : { text, length: null };
    }

    aotlens.page("compare", {
        preset: function ({ left, right, left_off, right_off, head }) {
            const by = aotlens.triggered();
            if (by === "compare-swap") return { left: right, right: left, left_off: right_off, right_off: left_off };
            const own = by === "compare-preset-off", { left: one, right: other } = element(by).dataset;
            const off = own ? [(head || "0.0").split(".").map(Number)] : [];
            return { left: own ? left : one, right: own ? left : other, left_off: [], right_off: off };
        },

        submit: function (given) {
            const { left, right, example, another, panes } = given;
            const changed = triggered(), byExample = changed.includes("compare-example.value");
            if (byExample && !example && changed.length === 1) return {};
            if (example && byExample) element("compare-text").value = example;
            const { maxCharacters, needsCorpus } = document.querySelector(".compare[data-needs-corpus]").dataset;
            const most = Number(maxCharacters);
            const text = textOf("compare-text", most), other = another ? textOf("compare-other", most) : null;
            const off = {};
            for (const side of ["left", "right"]) {
                // Another checkpoint has other heads, unless a preset says which of them are off.
                const isNew = given[side] !== panes[side].checkpoint && !changed.includes(`compare-${side}-off.data`);
                off[`${side}_off`] = isNew ? [] : given[`${side}_off`] || [];
            }
            const next = {
                left: { checkpoint: left, off: off.left_off }, right: { checkpoint: right, off: off.right_off },
                text: text.text, length: text.length, other: other && (other.text ?? ""), other_length: other && other.length,
                right_text: other ? other.text : text.text, how: given.how, corpus: given.corpus,
            };
            const boxes = {
                other_box: another ? "" : "hidden", corpus_box: needsCorpus.split(" ").includes(given.how) ? "" : "hidden",
            };
            const cleared = byExample && example ? { text: example, example: null } : {};
            const same = JSON.stringify(next) === JSON.stringify({ ...next, ...panes });
            return { ...boxes, ...off, ...cleared, ...(same && !changed.includes("compare-run.n_clicks") ? {} : { panes: next }) };
        },

        sayOff: ({ left_off, right_off }) => ({ left: sayOff(left_off), right: sayOff(right_off) }),

        // The maps are of other panes until their heads are known, which may take seconds: they say so (waiting.js).
        showPanes: function ({ shown, positions }) {
            Object.assign(state, { shown, positions: positions || { left: null, right: null } });
            for (const map of Object.values(maps)) {
                if (shown && state.pair && state.pair.key !== shown.key) element(map.panel)?.setAttribute("aria-busy", "true");
            }
            mark();
        },

        showLosses: function ({ strip, other }) {
            aotlens.draw("compare-strip", strip);
            aotlens.draw("compare-other-strip", other);
            mark();
        },

        showPair: function ({ pair }) {
            state.pair = pair;
            mark();
        },

        showPairs: function ({ gallery }) {
            aotlens.draw("compare-gallery", gallery);
            mark();
        },

        lockFromMap: function (clicks) {
            const graph = aotlens.triggered();
            const name = Object.keys(maps).find((one) => graph === `${maps[one].panel}-graph`);
            const point = name && clicks[name] && clicks[name].points && clicks[name].points[0];
            const found = point && String(point.y).match(/(\d+)$/);
            if (found) lock(sideOf(name), Number(found[1]));
        },

        pickFromTable: function ({ click }) {
            const point = click && click.points && click.points[0];
            if (point) pick(String(point.y), String(point.x));
        },
    });
})();
