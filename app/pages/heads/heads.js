// The Heads page between two questions to the server: hover, lock, keys.
// The server is asked on a choice only: a text, a head, a view, a locked token.
(function () {
    "use strict";
    const BEST = 5, LEAST = 0.1; // heads that are numbered in the picture, if they have such a score
    const OPENING = 60; // frames that a tab may take to open
    const state = { rank: null, motifs: null, analysis: null, head: null, position: null, direction: "to", hover: null, off: [],
        cell: null, against: null };

    const { setProps } = aotlens;
    const strip = () => document.getElementById("heads-strip");

    // ── the map's values ────────────────────────────────────────────────────────────────────────────────────

    const map = aotlens.headMap("heads-map");

    // It may still be that of another text or head, whose values would be wrong.
    map.fits = (shown) => state.analysis && shown.key === state.analysis.key && state.head
        && state.head.join() === [shown.layer, shown.head].join();
    map.changed = () => paint();
    map.drawn = () => frame();

    // The values that belong to one token: its row (where it attends) or its column (who attends to it).
    function slice(position) {
        const shown = map.now();
        if (!shown || position === null || position >= shown.size) return null;
        const line = map.line(position);
        if (line) return { exact: true, values: Array.from(state.direction === "to" ? line.row : line.column) };
        const at = state.direction === "to"
            ? (other) => shown.values[position * shown.size + other]
            : (other) => shown.values[other * shown.size + position];
        return { exact: false, values: Array.from({ length: shown.size }, (_, other) => at(other)) };
    }

    function short(value) {
        const size = Math.abs(value);
        if (size >= 100) return value.toFixed(0);
        if (size >= 10) return value.toFixed(1);
        return value.toFixed(2).replace(/^(-?)0\./, "$1.");
    }

    // ── shading ─────────────────────────────────────────────────────────────────────────────────────────────

    function paint() {
        const box = strip();
        if (!box) return;
        const position = state.hover !== null ? state.hover : state.position;
        const found = slice(position);
        const values = found && found.values;
        const known = values ? values.filter(Number.isFinite) : [];
        const top = known.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        for (const chip of box.children) {
            const index = Number(chip.dataset.position);
            const value = values ? values[index] : NaN;
            const share = top > 0 && Number.isFinite(value) ? value / top : 0;
            chip.style.setProperty("--heat", (100 * Math.abs(share)).toFixed(1) + "%");
            chip.classList.toggle("chip-negative", share < 0);
            chip.classList.toggle("chip-here", index === position);
            chip.classList.toggle("chip-locked", index === state.position);
            chip.setAttribute("aria-pressed", String(index === state.position));
            if (found && found.exact && Math.abs(share) >= 0.04) chip.dataset.value = short(value);
            else delete chip.dataset.value;
        }
        markLosses();
    }

    // The same token among the losses, whose shading is the server's.
    function markLosses() {
        const position = state.hover !== null ? state.hover : state.position;
        for (const chip of document.querySelectorAll(".strip-losses .chip")) {
            const index = Number(chip.dataset.position);
            chip.classList.toggle("chip-here", index === position);
            chip.classList.toggle("chip-locked", index === state.position);
            chip.setAttribute("aria-pressed", String(index === state.position));
        }
    }

    // Which heads are switched off: in the grid, and in words.
    function markOff() {
        aotlens.markSwitches("heads-off", state.off);
        const names = new Set(state.off.map((pair) => pair.join(".")));
        for (const cell of document.querySelectorAll("#heads-grid-cells .cell")) {
            cell.classList.toggle("cell-off", names.has(`${cell.dataset.layer}.${cell.dataset.head}`));
        }
        document.getElementById("heads-columns")?.toggleAttribute("data-off", names.size > 0);
        const says = document.querySelector("#heads-off-line .off-says");
        if (says) says.textContent = names.size ? `Without ${[...names].join(", ")}` : "Every head is on";
    }

    function markHead() {
        for (const cell of document.querySelectorAll("#heads-grid-cells .cell")) {
            const here = state.head && Number(cell.dataset.layer) === state.head[0]
                && Number(cell.dataset.head) === state.head[1];
            cell.classList.toggle("cell-chosen", Boolean(here));
            cell.tabIndex = here ? 0 : -1;
            if (here) cell.setAttribute("aria-current", "true");
            else cell.removeAttribute("aria-current");
        }
    }

    // What each head is known to do, measured apart from this text.
    function markMotifs() {
        const columns = document.getElementById("heads-columns");
        const line = document.getElementById("heads-motifs-line");
        if (!columns || !line) return;
        const analysis = state.analysis;
        columns.toggleAttribute("data-empty", !analysis);
        if (analysis) columns.toggleAttribute("data-tall", analysis.layers > 0.6 * analysis.heads);
        const motifs = state.motifs && state.motifs.scores ? state.motifs : { badges: {}, says: {}, scores: {} };
        const ranked = Object.entries(motifs.scores[state.rank] || {}).sort((one, other) => other[1] - one[1]);
        const best = new Map(ranked.slice(0, BEST).filter(([, score]) => score >= LEAST).map(([head], index) => [head, index + 1]));
        for (const cell of document.querySelectorAll("#heads-grid-cells .cell")) {
            const head = cell.dataset.layer + "." + cell.dataset.head;
            const told = { motif: motifs.badges[head], tip: motifs.says[head], best: best.get(head) };
            for (const [name, value] of Object.entries(told)) {
                if (value) cell.dataset[name] = value;
                else delete cell.dataset[name];
            }
        }
        list(ranked, best);
        const scores = state.head ? Object.entries(motifs.scores).filter(([, byHead]) => state.head.join(".") in byHead) : [];
        const values = scores.map(([motif, byHead]) => `${motif.replaceAll("_", " ")} ${byHead[state.head.join(".")].toFixed(2)}`);
        line.textContent = analysis && values.length ? "Motifs on repeated random tokens: " + values.join(", ") : "";
    }

    // The ranking: a button a head, best first; the arrow keys move along it.
    function list(ranked, best) {
        const box = document.getElementById("heads-ranking");
        const chosen = state.head && state.head.join(".");
        const focused = box.contains(document.activeElement) ? document.activeElement.dataset.head : null;
        box.replaceChildren(...ranked.map(([head, score], index) => {
            const button = document.createElement("button");
            button.className = best.has(head) ? "ranked-head ranked-head-best" : "ranked-head";
            button.textContent = `${head} ${short(score)}`;
            Object.assign(button.dataset, { position: index, head: head });
            button.tabIndex = index ? -1 : 0;
            button.setAttribute("aria-pressed", String(head === chosen));
            return button;
        }));
        if (focused) box.querySelector(`[data-head="${focused}"]`)?.focus();
    }

    const frame = () => map.frame(state.position, state.direction === "to", state.cell);

    // ── hover, lock, keys ───────────────────────────────────────────────────────────────────────────────────

    function hover(position) {
        if (state.hover === position) return;
        state.hover = position;
        map.want(position !== null ? position : state.position);
        paint();
    }

    // Marked at once; the server's answers follow. A locked entry that is not the token's is none any more.
    function lock(position) {
        state.position = position;
        map.want(position);
        if (state.cell && state.cell[state.direction === "to" ? 0 : 1] !== position) lockEntry(null);
        paint();
        frame();
        setProps("heads-position", { data: position });
    }

    function lockEntry(cell, against = null) {
        Object.assign(state, { cell, against });
        frame();
        markWhy();
        setProps("heads-cell", { data: { cell, against } });
    }

    function markWhy() {
        const button = document.getElementById("heads-why-button");
        if (!button) return;
        button.hidden = !state.cell;
    }

    // The entry of another head that a line of the explanation leads to; of a path through several, a token of its map.
    function leadOn(link) {
        const { layer, head, query, key, position, direction } = link.dataset;
        choose(Number(layer), Number(head));
        if (direction !== state.direction) {
            state.direction = direction;
            setProps("heads-direction", { value: direction });
        }
        lock(Number(position));
        lockEntry(query === "" ? null : [Number(query), Number(key)]);
        aotlens.openTab("heads-tabs", "map");
    }

    function compareWith(button) {
        const { query, key } = button.parentElement.dataset, { against } = button.dataset;
        lockEntry([Number(query), Number(key)], /^\d+$/.test(against) ? Number(against) : against);
    }

    function choose(layer, head) {
        state.head = [layer, head];
        markHead();
        markMotifs();
        paint();
        setProps("heads-head", { data: state.head });
    }

    function chipOf(target) {
        return target instanceof Element ? target.closest("#heads-strip .chip, .strip-losses .chip") : null;
    }

    function cellOf(target) {
        return target instanceof Element ? target.closest("#heads-grid-cells .cell") : null;
    }

    function rankedOf(target) {
        return target instanceof Element ? target.closest("#heads-ranking .ranked-head") : null;
    }

    document.addEventListener("mouseover", function (event) {
        const chip = chipOf(event.target);
        if (chip) hover(Number(chip.dataset.position));
        else if (state.hover !== null) hover(null);
    });

    document.addEventListener("focusin", function (event) {
        const chip = chipOf(event.target);
        if (chip && chip.matches(":focus-visible")) hover(Number(chip.dataset.position));
    });

    document.addEventListener("focusout", function (event) {
        if (chipOf(event.target)) hover(null);
    });

    document.addEventListener("click", function (event) {
        const chip = chipOf(event.target);
        if (chip) {
            const position = Number(chip.dataset.position);
            lock(state.position === position ? null : position);
        }
        const cell = cellOf(event.target);
        if (cell) choose(Number(cell.dataset.layer), Number(cell.dataset.head));
        const target = event.target instanceof Element ? event.target : null;
        if (target?.closest("#heads-why-button")) aotlens.openTab("heads-tabs", "why");
        const against = target?.closest(".why-against"), link = target?.closest("#heads-why-lines a[data-layer]");
        if (against) compareWith(against);
        if (link && !(event.metaKey || event.shiftKey || event.altKey || event.ctrlKey)) {
            event.preventDefault();
            leadOn(link);
        }
        const ranked = rankedOf(event.target);
        if (ranked) choose(...ranked.dataset.head.split(".").map(Number));
    });

    // The key w, but not where somebody types.
    function asksWhy(event) {
        const plain = event.key === "w" && !(event.metaKey || event.altKey || event.ctrlKey);
        return plain && state.analysis && document.getElementById("heads-columns")
            && !event.target.closest("input, textarea, select, dialog, [contenteditable=true]");
    }

    function moveHead(event) {
        const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
        const step = steps[event.key];
        if (!step || !state.head || !state.analysis) return;
        event.preventDefault();
        const layer = Math.min(Math.max(state.head[0] + step[0], 0), state.analysis.layers - 1);
        const head = Math.min(Math.max(state.head[1] + step[1], 0), state.analysis.heads - 1);
        choose(layer, head);
        const cell = document.querySelector(`#heads-grid-cells .cell[data-layer="${layer}"][data-head="${head}"]`);
        if (cell) cell.focus();
    }

    document.addEventListener("keydown", function (event) {
        const chip = chipOf(event.target);
        if (asksWhy(event)) aotlens.openTab("heads-tabs", "why");
        else if (chip && event.key === "Escape") lock(null);
        else if (chip || rankedOf(event.target)) aotlens.moveChip(event, chip || rankedOf(event.target));
        else if (cellOf(event.target) && event.key === "x") aotlens.toggleHead("heads-off", ...state.head);
        else if (cellOf(event.target)) moveHead(event);
    });

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
        show: function ({ analysis, head, position, locked, direction, tab, strip, cells, off, how, corpus }) {
            aotlens.draw("heads-strip", strip);
            aotlens.draw("heads-grid-cells", cells);
            Object.assign(state, { analysis, head, position: position ?? null, direction, off: off || [], ...locked });
            map.want(state.hover !== null ? state.hover : state.position);
            requestAnimationFrame(function () {
                paint();
                markHead();
                markMotifs();
                markOff();
                markWhy();
                frame();
            });
            const run = analysis && { key: analysis.key, off: state.off, how, corpus };
            // Nothing of a tab that is closed; the locked token counts where no entry is locked.
            const why = analysis && head && tab === "why" ? {
                key: analysis.key, head, cell: state.cell, position: state.cell ? null : position ?? null, direction,
                against: state.against, off: state.off,
            } : null;
            // Without a text the store is as empty as it was, and its panel, which is in the document from now on, waits.
            if (tab === "why" && !why) aotlens.passOn("heads-why-of", null, OPENING);
            const line = state.off.length ? "off-line" : "off-line off-none";
            const shown = document.getElementById("heads-off-line");
            return {
                predicted: news("predicted", run && { ...run, position: position ?? null }, shown),
                run: news("run", run, shown),
                why: news("why", why, shown),
                line: shown && shown.className === line ? window.dash_clientside.no_update : line,
            };
        },

        showWhy: ({ lines }) => aotlens.draw("heads-why-lines", lines),

        showLosses: function ({ whole, change }) {
            aotlens.draw("heads-losses-whole", whole);
            aotlens.draw("heads-losses-change", change);
            requestAnimationFrame(markLosses);
        },

        switchAllOn: () => ({ off: [] }),

        showMotifs: function ({ motifs, rank }) {
            Object.assign(state, { motifs, rank });
            requestAnimationFrame(markMotifs);
        },

        lockFromMap: function ({ click, direction }) {
            const point = click && click.points && click.points[0];
            const at = point && [point.y, point.x].map((label) => String(label).match(/(\d+)$/));
            if (!at || !at[0] || !at[1]) return;
            const cell = at.map((found) => Number(found[1]));
            lock(cell[direction === "to" ? 0 : 1]);
            lockEntry(cell);
        },
    });
})();
