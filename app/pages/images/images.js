// The Images page: the widget (aotlens/widget/patches.js) draws the images and the maps in the page's panels; here its choices
// go to Dash's stores, and theirs to it. The server is asked for the maps once a choice of images, and for what depends on the
// image that is looked at. Here, too, somebody draws with a pointer.
(function () {
    "use strict";
    const { setProps } = aotlens;
    const same = (one, other) => JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
    const byId = (id) => document.getElementById(`images-${id}`);
    const found = (event, selector) => event.target instanceof Element ? event.target.closest(`.images-page ${selector}`) : null;
    let heads = null, PatchMaps = null, shown = null;

    const ready = customElements.whenDefined("aotlens-heads").then(function ({ parts }) {
        PatchMaps = parts.PatchMaps;
        heads = new parts.ImageHeads();
        heads.places = { gallery: parts.Gallery, "grid-cells": parts.PatchGrid, pictures: parts.ImageMaps, "paths-picture": parts.SignedMap };
        heads.addEventListener("choose", function () {
            if (!same(heads.head, stored("head"))) send({ head: heads.head });
            if (heads.image !== stored("image")) send({ image: heads.image });
        });
        heads.addEventListener("off", () => send({ off: heads.off }));
        heads.addEventListener("query", function () {
            send({ patch: heads.query });
            if (heads.maps.at(heads.query) < 0) askMaps(asked.maps);
        });
        heads.addEventListener("drawn", mark);
    });

    // ── maps, by a route of their own ───────────────────────────────────────────────────────────────────────

    const fetchMaps = aotlens.maps("/images/maps", (bytes) => PatchMaps.of(bytes));
    let number = 0, noticed = false;

    // Of every query where they are small; else of the one that is locked.
    async function askMaps(chosen) {
        const mine = ++number, question = (patch) => aotlens.address.format("images", { ...chosen, patch }).split("?")[1] ?? "";
        await ready;
        aotlens.busy(["images-grid"], true);
        let maps = await fetchMaps(question(null));
        if (maps?.only && heads.query) maps = await fetchMaps(question(heads.query));
        if (mine !== number) return; // something else by now
        aotlens.busy(["images-grid"], false);
        if (maps.instead || noticed) setProps("images-grid-notice", { children: maps.instead ?? null });
        noticed = Boolean(maps.instead);
        heads.set({ maps: "instead" in maps ? null : maps });
    }

    // ── choices ─────────────────────────────────────────────────────────────────────────────────────────────

    const stored = (store) => waiting.get(store) ?? dash_component_api.getLayout(`images-${store}`)?.props.data ?? null;
    const waiting = new Map(); // by store: what it will hold once the frame is drawn

    function send(values) {
        if (!waiting.size) aotlens.afterFrame(sendAll);
        for (const [store, data] of Object.entries(values)) waiting.set(store, data);
    }

    function sendAll() {
        const all = [...waiting], layer = waiting.get("head")?.[0];
        waiting.clear();
        for (const [store, data] of all) setProps(`images-${store}`, { data });
        if (layer !== undefined && layer !== dash_component_api.getLayout("images-layer").props.value) setProps("images-layer", { value: layer });
    }

    function choose(values) {
        heads.set(values);
        send(values);
    }

    aotlens.onPick("images-ranked", ([layer, head]) => heads.choose(layer, head));

    function turn(pages) {
        const start = shown && Math.max(0, (waiting.get("start") ?? stored("start") ?? shown.start) + pages * shown.per_page);
        if (shown && start < shown.n_all) send({ start });
    }

    // What the server has put in the place of what there is not, and the classes that can be chosen.
    function setControls({ data, of, layers, options }) {
        const control = function (name, props) {
            const now = dash_component_api.getLayout(`images-${name}`).props;
            if (Object.keys(props).some((prop) => !same(props[prop], now[prop]))) setProps(`images-${name}`, props);
        };
        const listed = (names) => names.map((label, value) => ({ value: String(value), label }));
        control("data", { value: data });
        control("of", { data: listed(options.of), value: of === null ? null : String(of) });
        control("target", { data: listed(options.target) });
        control("layer", { max: Math.max(layers - 1, 1), disabled: layers === 1 });
    }

    // What the page says beside the widget.
    function mark() {
        const line = byId("off-line"), [layer, head] = heads.head;
        if (!line) return;
        line.classList.toggle("images-all-on", !heads.off.length);
        const says = heads.off.length ? `${heads.off.length > 1 ? "Heads" : "Head"} ${heads.off.map((pair) => pair.join(".")).join(", ")} ablated` : "No heads ablated";
        const title = shown ? `Image ${heads.image + 1}, head ${layer}.${head}` : "One image";
        for (const [element, text] of [[line.querySelector(".off-says"), says], [byId("maps-title"), title]])
            if (element.textContent !== text) element.textContent = text;
        byId("page").style.setProperty("--images", heads.maps?.images ?? 1);
    }

    document.addEventListener("click", function (event) {
        if (found(event, "#images-clear")) clear();
        if (found(event, "#images-use")) look();
        if (found(event, "#images-all-on")) choose({ off: [] });
        if (found(event, "#images-previous")) turn(-1);
        if (found(event, "#images-next")) turn(1);
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

    const MAPS = ["checkpoint", "data", "of", "start", "own", "off", "how"]; // what maps depend on
    let asked = {}, measured = {}; // of a page that is opened again, the stores are new and hold nothing

    aotlens.page("images", {
        choose: function ({ shown: before, ...form }) {
            if (asked.page !== byId("page")) asked = { page: byId("page") };
            for (const name of ["of", "target"]) form[name] = form[name] ? Number(form[name]) : null;
            const old = asked.form && before ? { ...asked.form, ...before } : null, others = old && ["data", "of"].filter((name) => !same(old[name], form[name]));
            if (others?.length && form.start) {
                setProps("images-start", { data: 0 }); // and then again
                return;
            }
            if (others?.includes("data") && form.of !== null) {
                setProps("images-of", { value: null });
                return;
            }
            const known = old && Object.keys(form).every((name) => same(form[name], old[name])); // the answer has set controls
            const maps = Object.fromEntries(MAPS.map((name) => [name, form[name]]));
            if (!known && !same(form, asked.form)) {
                setProps("images-chosen", { data: form });
                if (!same(maps, asked.maps)) askMaps(maps);
            }
            Object.assign(asked, { form, maps });
        },

        show: function ({ shown: now, image, head, patch, off, layer, view, order, ranking, added, taken, ranked, likeliest }) {
            aotlens.drawTables("images-ranked", ranked);
            aotlens.draw("images-likeliest", likeliest);
            const columns = byId("columns"), there = ([layer, head]) => layer < now.layers && head < now.heads, values = { image, head, patch, off };
            if (columns.dataset.empty !== "no model") columns.toggleAttribute("data-empty", !now);
            const isRanked = now && ranking && ranking.checkpoint === now.checkpoint && ranking.data === now.data;
            byId("consistency")?.toggleAttribute("data-made", Boolean(isRanked));
            if (now) {
                if (shown && !same(shown.own, now.own)) values.image = 0;
                if (image >= now.n) values.image = 0;
                if (!there(head)) values.head = [Math.min(head[0], now.layers - 1), Math.min(head[1], now.heads - 1)];
                if (patch && Math.max(...patch) >= now.rows) values.patch = null;
                if (!off.every(there)) values.off = off.filter(there);
                for (const name of Object.keys(values)) if (waiting.has(name)) values[name] = waiting.get(name);
                send(Object.fromEntries(Object.entries(values).filter(([name, value]) => !same(value, stored(name)))));
            }
            if (now && now !== shown) setControls(now);
            shown = now;
            ready.then(function () {
                for (const [id, Part] of Object.entries(heads.places)) heads.part(Part, byId(id));
                const { patch: query, ...rest } = values;
                heads.set({ ...rest, query, weighted: view === "weighted", added, taken, ranking: order === "consistent" && isRanked ? ranking.heads : null,
                    ...(now ? {} : { maps: null }) });
            });
            if (aotlens.triggered() === "images-layer" && layer !== head[0]) ready.then(() => heads.choose(layer, head[1]));
            if (byId("canvas")) pen(byId("canvas"));
            const answer = { remove: now?.own.length ? "" : "hidden" }, of = now && { checkpoint: now.checkpoint, data: now.data };
            if (measured.page === columns && same(measured.of, of)) return answer;
            measured = { page: columns, of };
            return { ...answer, measured: of };
        },
    });
})();
