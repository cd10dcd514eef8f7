// The Images page between two questions to the server: what is marked, choosing by click and keys, drawing with a pointer.
(function () {
    "use strict";
    const state = { shown: null, image: 0, layer: 0, head: 0, patch: null, off: [] };
    const { setProps } = aotlens;
    const byId = (id) => document.getElementById(`images-${id}`);
    const all = (selector) => document.querySelectorAll(`.images-page ${selector}`);

    // ── what is marked ──────────────────────────────────────────────────────────────────────────────────────

    function oneStop(buttons, chosen) {
        const list = [...buttons];
        const stop = list.find(chosen) || list[0];
        for (const button of list) button.tabIndex = button === stop ? 0 : -1;
        return stop;
    }

    function mark() {
        const page = byId("page");
        if (!page) return;
        const columns = byId("columns");
        if (columns.dataset.empty !== "no model") columns.toggleAttribute("data-empty", !state.shown);
        const { image, layer, head, patch } = state;
        for (const [name, value] of Object.entries({ images: state.shown?.n, patches: state.shown?.columns })) {
            page.style.setProperty(`--${name}`, value || 1);
        }
        const isImage = (button) => Number(button.dataset.image) === image;
        const isHead = (button) => Number(button.dataset.layer) === layer && Number(button.dataset.head) === head;
        for (const button of all(".gallery-image")) button.setAttribute("aria-pressed", String(isImage(button)));
        oneStop(all(".gallery-image"), isImage);
        for (const cell of all(".map-cell")) cell.classList.toggle("map-here", isHead(cell) && isImage(cell));
        for (const name of all(".row-name")) name.classList.toggle("row-here", isHead(name));
        oneStop(all(".map-cell"), (cell) => isHead(cell) && isImage(cell));
        const names = new Set(state.off.map((pair) => pair.join(".")));
        for (const cell of all(".map-cell")) cell.classList.toggle("map-off", names.has(`${cell.dataset.layer}.${cell.dataset.head}`));
        aotlens.markSwitches("images-off", state.off);
        const line = byId("off-line");
        line.classList.toggle("images-all-on", !names.size);
        line.querySelector(".off-says").textContent = names.size ? `Ablated: ${[...names].join(", ")}` : "No heads ablated";
        for (const button of all(".ranked-row")) button.setAttribute("aria-pressed", String(isHead(button)));
        for (const button of all(".patch")) {
            const here = patch && Number(button.dataset.row) === patch[0] && Number(button.dataset.column) === patch[1];
            button.setAttribute("aria-pressed", String(Boolean(here)));
        }
    }

    // ── choices ─────────────────────────────────────────────────────────────────────────────────────────────

    function chooseImage(image) {
        state.image = image;
        mark();
        setProps("images-image", { data: image });
    }

    function chooseHead(layer, head) {
        Object.assign(state, { layer, head });
        mark();
        setProps("images-head", { data: head });
        setProps("images-layer", { value: layer });
    }

    function choosePatch(row, column) {
        const same = state.patch && state.patch[0] === row && state.patch[1] === column;
        state.patch = same ? null : [row, column];
        mark();
        setProps("images-patch", { data: state.patch });
    }

    const found = (event, selector) => event.target instanceof Element ? event.target.closest(`.images-page ${selector}`) : null;
    const numbers = (element, ...names) => names.map((name) => Number(element.dataset[name]));

    document.addEventListener("click", function (event) {
        const cell = found(event, ".map-cell"), image = found(event, ".gallery-image"), patch = found(event, ".patch");
        const ranked = found(event, ".ranked-row");
        if (cell) {
            chooseImage(Number(cell.dataset.image));
            chooseHead(...numbers(cell, "layer", "head"));
        }
        if (image) chooseImage(Number(image.dataset.image));
        if (patch) choosePatch(...numbers(patch, "row", "column"));
        if (ranked) chooseHead(...numbers(ranked, "layer", "head"));
        if (found(event, "#images-clear")) clear();
        if (found(event, "#images-use")) look();
    });

    const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

    function goTo(event, from, to) {
        event.preventDefault();
        if (!to) return null;
        from.tabIndex = -1;
        to.tabIndex = 0;
        to.focus();
        return to;
    }

    document.addEventListener("keydown", function (event) {
        const cell = found(event, ".map-cell"), image = found(event, ".gallery-image"), patch = found(event, ".patch");
        if (cell && event.key === "x") aotlens.toggleHead("images-off", ...numbers(cell, "layer", "head"));
        if (patch && event.key === "Escape" && state.patch) choosePatch(...state.patch);
        const step = STEPS[event.key];
        if (!step) return;
        if (cell) {
            const [row, column] = numbers(cell, "row", "image");
            const to = document.querySelector(`.map-cell[data-row="${row + step[0]}"][data-image="${column + step[1]}"]`);
            const next = goTo(event, cell, to);
            if (next) {
                chooseImage(Number(next.dataset.image));
                chooseHead(...numbers(next, "layer", "head"));
            }
        }
        if (image) {
            const to = document.querySelector(`.gallery-image[data-image="${Number(image.dataset.image) + step[0] + step[1]}"]`);
            const next = goTo(event, image, to);
            if (next) chooseImage(Number(next.dataset.image));
        }
        if (patch) {
            const [row, column] = numbers(patch, "row", "column");
            goTo(event, patch, document.querySelector(`.patch[data-row="${row + step[0]}"][data-column="${column + step[1]}"]`));
        }
    });

    // ── drawing ─────────────────────────────────────────────────────────────────────────────────────────────

    let held = null; // where the pointer was

    function pen(canvas) {
        const context = canvas.getContext("2d");
        if (!canvas.dataset.ready) {
            canvas.dataset.ready = "1";
            context.fillStyle = "black";
            context.fillRect(0, 0, canvas.width, canvas.height);
        }
        Object.assign(context, { strokeStyle: "white", lineWidth: canvas.width / 11, lineCap: "round", lineJoin: "round" });
        return context;
    }

    function place(event, canvas) {
        const box = canvas.getBoundingClientRect();
        return [(event.clientX - box.left) * canvas.width / box.width, (event.clientY - box.top) * canvas.height / box.height];
    }

    function stroke(from, to, canvas) {
        const context = pen(canvas);
        context.beginPath();
        context.moveTo(...from);
        context.lineTo(...to);
        context.stroke();
        canvas.dataset.drawn = "1";
    }

    function clear() {
        const canvas = byId("canvas");
        delete canvas.dataset.ready;
        delete canvas.dataset.drawn;
        pen(canvas);
    }

    function look() {
        const canvas = byId("canvas");
        if (!canvas.dataset.drawn) return;
        setProps("images-sent", { data: { name: "a drawing", contents: canvas.toDataURL("image/png") } });
        byId("draw").open = false;
    }

    document.addEventListener("pointerdown", function (event) {
        const canvas = found(event, "#images-canvas");
        if (!canvas || event.button !== 0) return;
        event.preventDefault();
        held = place(event, canvas);
        stroke(held, held, canvas);
    });

    document.addEventListener("pointermove", function (event) {
        const canvas = held && byId("canvas");
        if (!canvas) return;
        const here = place(event, canvas);
        stroke(held, here, canvas);
        held = here;
    });

    document.addEventListener("pointerup", () => { held = null; });
    document.addEventListener("pointercancel", () => { held = null; });

    // ── what Dash calls ─────────────────────────────────────────────────────────────────────────────────────

    // What Dash has from `show` already starts nothing. A page that is opened again has new stores, which hold nothing.
    let sent = { page: null, text: null };

    aotlens.page("images", {
        show: function ({ shown, image, head, patch, off, layer, how, target, cells, gallery, ranked, pictures }) {
            aotlens.draw("images-cells", cells);
            aotlens.draw("images-gallery", gallery);
            aotlens.draw("images-ranked", ranked);
            aotlens.draw("images-pictures", pictures);
            Object.assign(state, { shown, image: image ?? 0, head: head ?? 0, patch: patch || null, off: off || [], layer: layer ?? 0 });
            requestAnimationFrame(mark);
            const page = byId("page");
            const picked = shown && {
                ...shown, image: state.image, layer: state.layer, head: state.head, patch: state.patch, off: state.off, how,
                target: target ?? null,
            };
            const answer = { remove: shown && shown.own.length ? "" : "hidden" };
            const text = JSON.stringify(picked ?? null);
            if (sent.page === page && sent.text === text) return answer;
            sent = { page, text };
            const canvas = byId("canvas");
            if (canvas) pen(canvas);
            return { ...answer, picked: picked ?? null };
        },

        turn: function ({ shown }) {
            if (!shown) return {};
            const step = aotlens.triggered() === "images-later" ? shown.per_page : -shown.per_page;
            const next = Math.max(0, shown.start + step);
            return next < shown.n_all ? { start: next } : {};
        },

        switchAllOn: () => ({ off: [] }),
    });
})();
