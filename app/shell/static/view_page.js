// Pages that are made of views (app/shell/view_page.py). What the controls say goes as one choice into the store NAME-shown;
// the limits that the server answers go to the controls; clicks on figures and maps set controls. A page's own script does so
// with aotlens.choose.
(function () {
    "use strict";
    const same = (one, other) => JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
    const { component } = aotlens;
    const pageOf = aotlens.pageOf = () => document.querySelector(".view-page")?.id.replace(/-page$/, "");
    const factsOf = (page) => JSON.parse(document.getElementById(`${page}-page`).dataset.facts);
    const asText = (value) => (Array.isArray(value) ? value.map(String) : value === null || value === undefined ? null : String(value));

    // Sets fields of the page: {field: value}; of a searched field, whose options may lack it, {value, label}.
    aotlens.choose = function (page, fields) {
        const { kinds = {} } = factsOf(page);
        for (const [field, value] of Object.entries(fields)) {
            const id = `${page}-field-${field}`, { type, props } = component(id) ?? {};
            if (type === "Tabs") aotlens.openTab(id, value);
            else if (type === "Store") aotlens.settle(id, { data: value });
            else if (type === "Switch") aotlens.settle(id, { checked: value });
            else if (type && kinds[field] === "head") aotlens.settle(id, { value: Array.isArray(value) ? value.join(".") : value?.value ?? value });
            else if (type && kinds[field] === "log") aotlens.settle(id, { value: value === null ? props["data-rest"] : Math.log10(value) });
            else if (value?.label !== undefined) {
                const option = { value: String(value.value), label: value.label };
                aotlens.settle(id, { data: joined([option], props.data), value: option.value });
            } else if (type) {
                const first = kinds[field] === "first" && value === null ? props.data?.[0]?.value : value;
                const empty = ["number", "text"].includes(kinds[field]) ? "" : null; // of a box
                aotlens.settle(id, { value: kinds[field] === "row" ? asText(value) : first ?? empty });
            }
        }
    };

    const joined = (options, others) => [...options, ...others.filter(({ value }) => !options.some((option) => option.value === value))];

    // The options of a searched field: those that are offered, and the selected ones, whose names the control knows.
    function offer(id, options) {
        const { data = [], value } = component(id)?.props ?? {}, kept = [value ?? []].flat();
        aotlens.settle(id, { data: joined(options, data.filter((option) => kept.includes(option.value))) });
    }

    // The part of a form or a header that is a field's control with its label.
    function outermost(page, field) {
        const FRAMES = ".view-parameters, .view-strip, .two, .panel-controls, .panel-foot, .arranged-controls";
        let element = document.getElementById(`${page}-field-${field}`);
        while (element && !element.parentElement?.matches(FRAMES)) element = element.parentElement;
        return element;
    }

    const unsearched = {}; // by field's id: the options before anybody types
    // After a frame: Mantine drops a choice if other properties are set before it has told Dash of it.
    const takeIn = (id) => aotlens.afterFrame(() => component(id) && unsearched[id] && offer(id, unsearched[id]));

    // What is typed into a searched field is asked. What a choice sets is not typed.
    document.addEventListener("input", function ({ target: { id, value } }) {
        const page = pageOf(), field = page && id?.slice(`${page}-field-`.length);
        if (!page || !factsOf(page).searched?.includes(field)) return;
        if (value) aotlens.setProps(`${page}-search`, { data: { field, typed: value } });
        else takeIn(id);
    });

    // Whoever clicks into a searched choice types another one.
    document.addEventListener("click", function ({ target }) {
        if (target instanceof Element && target.matches("input.mantine-Select-input:not([readonly])")) target.select();
    });

    document.addEventListener("click", function ({ target }) {
        const button = target instanceof Element && target.closest("[data-sets]");
        if (!button) return;
        const page = pageOf(), shown = component(`${page}-shown`)?.props.data ?? {};
        const valueOf = (value) => (Array.isArray(value) ? value.map(valueOf) : typeof value === "string" && value.startsWith("=") ? shown[value.slice(1)] : value);
        aotlens.choose(page, Object.fromEntries(Object.entries(JSON.parse(button.dataset.sets)).map(([field, value]) => [field, valueOf(value)])));
        button.closest("details")?.removeAttribute("open");
    });

    // What a control says of its field (`fields.kind_of`): a slider at its end, an empty box and all models of a group say
    // nothing in particular; Mantine has texts for the numbers of rows.
    function read(facts, page, field, value, before) {
        const kind = (facts.kinds ?? {})[field];
        const { disabled, min, max, data, "data-rest": rest } = (kind && component(`${page}-field-${field}`)?.props) || {};
        if (value === undefined || disabled) return null;
        if (kind === "most") return value >= (max ?? Infinity) ? null : value;
        if (kind === "number") return value === "" || value === null || !Number.isFinite(Number(value)) ? null : Math.min(Math.max(Number(value), min), max);
        if (kind === "log") return value === rest ? null : Number((10 ** value).toPrecision(3));
        if (kind === "corpus") return value === "pasted text" ? before?.[field] ?? null : value;
        if (kind === "first") return value === data?.[0]?.value ? null : value;
        if (kind === "head") return value === null ? null : value.split(".").map(Number);
        if (kind === "several" && !value?.length && rest?.length) queueMicrotask(() => aotlens.choose(page, { [field]: rest }));
        if (kind === "several") return same(value, rest) ? [] : value ?? [];
        if (kind === "row") return Array.isArray(value) ? value.map(Number) : value === null ? null : Number(value);
        if (field === "models") return Object.values(facts.groups ?? {}).some((group) => same(group, value)) ? [] : value;
        return value;
    }

    // What means something else once another field has changed is no longer selected, unless it has just been.
    function clear(facts, page, shown, before) {
        for (const [field, by] of Object.entries(facts.cleared_by ?? {})) {
            const kind = facts.kinds[field], isList = ["row", "heads"].includes(kind) && Array.isArray(shown[field]);
            const none = isList ? [] : kind === "text" ? "" : null;
            const isChosen = before && !same(before[field], none) && same(before[field], shown[field]);
            if (!isChosen || !by.some((other) => !same(before[other], shown[other]))) continue;
            shown[field] = none;
            queueMicrotask(() => aotlens.choose(page, { [field]: none }));
        }
    }

    // The heads of a prompt, by page.
    const heads = {};
    function headsOf(page, [every, one]) {
        if (heads[page]) return heads[page];
        const shown = heads[page] = aotlens.headsOf({
            route: `/${page}/maps`, page, panels: [every, one],
            parts: [[`${every}-cells`, "Grid", { switches: false }], [`${one}-canvas`, "LargeMap"]],
        });
        shown.then(function (maps) {
            maps.addEventListener("choose", () => aotlens.afterFrame(() => aotlens.choose(page, { head: maps.head })));
            maps.addEventListener("lock", () => aotlens.afterFrame(() => aotlens.choose(page, { query: maps.position })));
            maps.addEventListener("drawn", function () {
                const title = document.getElementById(`${one}-title`);
                if (title) title.textContent = maps.maps ? `Head ${maps.head.join(".")}` : "One head";
            });
        });
        document.addEventListener("keydown", function (event) {
            const inside = event.target instanceof Element && event.target.closest(`#${every}-cells`);
            if (event.key === "Escape" && inside) shown.then((maps) => maps.release());
        });
        return shown;
    }

    // A figure's frame: the first, until it has been moved. dcc.Graph hands its figure to plotly when it gets to it: until
    // then the plot is the one before.
    const moved = new WeakMap(); // by the plot's layout: the frame that it shows
    const plotOf = (panel) => document.querySelector(`#${panel}-graph .js-plotly-plot`);
    const framesOf = (plot) => plot?._transitionData?._frames ?? [];

    function whenDrawn(panel, { layout: { meta } }, then, tries = 600) {
        const plot = plotOf(panel);
        if (plot?.layout?.meta?.key === meta.key && framesOf(plot).length) then(plot);
        else if (tries) aotlens.afterFrame(() => whenDrawn(panel, { layout: { meta } }, then, tries - 1));
    }

    function moveTo(panel, plot, step, then) {
        const { meta } = plot.layout;
        const mark = function () {
            document.getElementById(panel).dataset.frame = String(step);
            then();
        };
        if ((moved.get(meta) ?? 0) === step || step >= framesOf(plot).length) return mark();
        moved.set(meta, step);
        const atOnce = { mode: "immediate", frame: { duration: 0, redraw: true }, transition: { duration: 0 } };
        aotlens.during(window.Plotly.animate(plot, [String(step)], atOnce)).then(mark, () => undefined); // another one came first
    }

    // The point's own: of a heat map, whose entries' dcc.Graph leaves out, by its labels.
    function customdataOf({ customdata, x, y }, { type, ...trace }) {
        return (type === "heatmap" ? trace.customdata?.[trace.y.indexOf(y)]?.[trace.x.indexOf(x)] : customdata) ?? null;
    }

    let drawnIn = null, drawn = ""; // the element of the large map: one that is new has no locked entry; and what is drawn

    aotlens.page("viewPage", {
        collect: function (values) {
            const page = pageOf();
            if (!page) return {};
            const facts = factsOf(page), before = component(`${page}-shown`)?.props.data;
            const shown = Object.fromEntries(Object.entries(values).map(([field, value]) => [field, read(facts, page, field, value, before)]));
            clear(facts, page, shown, before);
            const { plainNumber, tenToThe } = dashMantineFunctions;
            const written = Object.entries(values).map(([field, value]) => [`value_of_${field}`, (facts.kinds?.[field] === "log" ? tenToThe : plainNumber)(value)]);
            return { ...(same(before, shown) ? {} : { shown }), ...Object.fromEntries(written) };
        },

        // What the controls may be set to. What the server has replaced is set unless somebody has chosen anew meanwhile; a
        // slider that stood at its end stays there.
        limit: function ({ limits }) {
            const page = pageOf(), shown = component(`${page}-shown`)?.props.data;
            if (!limits || !shown) return;
            const { kinds = {} } = factsOf(page), replaced = {};
            for (const link of document.querySelectorAll(`#${page}-page .page-link[id]`)) {
                aotlens.settle(link.id, { className: limits.hidden.includes(link.id) ? "page-link hidden" : "page-link" });
            }
            for (const [field, isHidden] of Object.entries(limits.hides)) outermost(page, field)?.classList.toggle("hidden", isHidden);
            for (const [fields, options] of Object.entries(limits.options)) {
                for (const id of fields.split(" ").map((field) => `${page}-field-${field}`)) {
                    unsearched[id] = options;
                    takeIn(id);
                }
            }
            for (const [field, [asked, taken]] of Object.entries(limits.replaced)) if (same(shown[field], asked)) replaced[field] = taken;
            for (const [field, props] of Object.entries(limits.props)) {
                if (!component(`${page}-field-${field}`)) continue; // the page is being left
                const value = (field in replaced ? replaced[field] : shown[field]) ?? null, isSeveral = kinds[field] === "several";
                const isAtRest = value === null || (isSeveral && !value.length);
                const rests = { most: props.max, first: props.data?.[0]?.value, log: props["data-rest"], several: props["data-rest"] };
                const end = isAtRest ? rests[kinds[field]] : shown[field] > props.max ? props.max : undefined;
                aotlens.settle(`${page}-field-${field}`, { ...props, ...(end === undefined ? {} : { value: end }) });
            }
            const canBeNone = (field) => component(`${page}-field-${field}`)?.type === "Store" || ["row", "first"].includes(kinds[field]);
            aotlens.choose(page, Object.fromEntries(Object.entries(replaced).filter(([field, taken]) => taken !== null || canBeNone(field))));
        },

        // Another group of checkpoints: those that were compared, as far as they are in it.
        regroup: function ({ group, models, checkpoint }) {
            const page = pageOf(), { groups = {}, kinds = {} } = page ? factsOf(page) : {}, names = groups[group];
            if (!names) return;
            for (const field of Object.keys(kinds).filter((each) => kinds[each] === "most")) { // which end elsewhere
                const id = `${page}-field-${field}`;
                aotlens.settle(id, { value: component(id).props.max });
            }
            const kept = models.filter((name) => names.includes(name)), value = kept.length ? kept : names;
            aotlens.settle(`${page}-field-models`, { data: names, value });
            aotlens.settle(`${page}-field-checkpoint`, { data: names, value: names.includes(checkpoint) ? checkpoint : value[0] });
        },

        // The buttons of all heads, and the selected one among them.
        showHeads: function ({ shown, limits }) {
            const page = pageOf(), { heads = [], kinds = {} } = page ? factsOf(page) : {};
            if (!limits || !shown) return;
            for (const field of heads.filter((each) => limits.heads[each])) {
                const id = `${page}-field-${field}-heads`, isSeveral = kinds[field] === "heads", names = document.getElementById(`${page}-field-${field}-line`);
                aotlens.showHeads(id, limits.heads[field], isSeveral ? shown[field] ?? [] : [shown[field] ?? [0, 0]]);
                if (isSeveral) names.textContent = (shown[field] ?? []).map((head) => head.join(".")).join(", ") || "none";
            }
        },

        // Tables whose cells are choices (`arrange.Linked`), with a mark on what is shown.
        listTables: function ({ shown, ...tables }) {
            for (const [name, data] of Object.entries(tables)) {
                const id = `${name.replaceAll("_", "-")}-lines`, page = id.split("-")[0];
                aotlens.onPick(id, (fields) => aotlens.choose(page, fields));
                aotlens.drawTables(id, data);
                if (shown) aotlens.markRows(id, shown);
            }
        },

        // Matrices whose entries are choices (`arrange.Matrix`), and the frame of the block that another panel shows.
        drawMatrices: function (matrices) {
            for (const [name, matrix] of Object.entries(matrices)) {
                const panel = name.replaceAll("_", "-"), page = panel.split("-")[0];
                const { picks, marks } = document.querySelector(`#${panel} [data-picks]`)?.dataset ?? {};
                if (!picks) continue;
                aotlens.drawMatrix(panel, matrix, function (place, drawn) {
                    const line = (axis, index, names) => ({ value: (drawn.meta[axis] ?? drawn[axis])[index], label: (drawn.meta[names] ?? drawn[axis])[index] });
                    const chosen = { rows: () => line("rows", place[0], "row_names"), columns: () => line("columns", place[1], "column_names"), place: () => place };
                    aotlens.choose(page, Object.fromEntries(Object.entries(JSON.parse(picks)).map(([field, how]) => [field, how.startsWith("=") ? how.slice(1) : chosen[how]()])));
                });
                if (marks) aotlens.markEntry(panel, matrices[`${page}_${marks}`]?.meta.block ?? null);
            }
        },

        // Figures with a frame for each value of a field go to the one that is chosen (`Panel.frames`); the sentence of a step
        // (`arrange.Steps`) is shown once every figure in sight is there.
        moveFrames: function ({ shown, ...given }) {
            const page = pageOf(), { frames = {}, steps = {} } = page && shown ? factsOf(page) : {};
            const stepOf = (field) => Number(component(`${page}-shown`)?.props.data?.[field] ?? component(`${page}-field-${field}`)?.props.value);
            const say = function () {
                for (const [panel, field] of Object.entries(steps)) {
                    const isLate = (other) => frames[other] === field && plotOf(other)?.checkVisibility() && document.getElementById(other).dataset.frame !== String(stepOf(field));
                    const lines = document.getElementById(`${panel}-body`);
                    if (lines && !Object.keys(frames).some(isLate)) [...lines.children].forEach((line, step) => { line.hidden = step !== stepOf(field); });
                }
            };
            for (const [panel, field] of Object.entries(frames)) {
                const figure = given[panel.replaceAll("-", "_")];
                if (figure?.layout?.meta?.key) whenDrawn(panel, figure, (plot) => moveTo(panel, plot, stepOf(field), say));
            }
            say();
        },

        // Another row is selected: the field offers what it did at first.
        takeIn: () => takeIn(aotlens.triggered()),

        offer: function ({ found }) {
            const id = found && `${pageOf()}-field-${found.field}`;
            if (id && document.getElementById(id)?.value === found.typed) offer(id, found.options);
        },

        // A click on a view's figure -> the parameter that the view says it picks (aotlens/views/view.py).
        pick: function (clicks) {
            const id = aotlens.triggered();
            const click = Object.entries(clicks).find(([panel]) => id === `${panel.replaceAll("_", "-")}-graph`);
            const point = click && click[1] && click[1].points[0];
            const plot = document.querySelector(`#${id} .js-plotly-plot`);
            const rule = plot && plot.layout.meta && plot.layout.meta.picks;
            if (!point || !rule) return {};
            const again = { [click[0]]: null }; // so that a click on the same place is a new one
            for (const each of rule.split(";")) {
                const [name, axes] = each.split(/\+?=/).map((part) => part.trim());
                if (each.includes("+=")) {
                    const item = point[axes];
                    const held = (clicks[name] || "").split(",").map((part) => part.trim()).filter(Boolean);
                    const others = held.filter((one) => one !== item);
                    if (item) again[name] = (others.length < held.length ? others : [...held, item]).join(", ");
                } else if (axes.startsWith("customdata")) {
                    const own = customdataOf(point, plot.data[point.curveNumber]), items = axes.split(".").slice(1).map((item) => own?.[item]);
                    const isHead = component(`${pageOf()}-field-${name}`)?.type === "Store" && /^\d+\.\d+$/.test(own);
                    if (own !== null) again[name] = items.length > 1 ? items : items.length ? [items[0]].flat().join(".") : Array.isArray(own) ? own : isHead ? own.split(".").map(Number) : String(own);
                } else if (axes === "name") {
                    const head = /\d+\.\d+/.exec(plot.data[point.curveNumber].name);
                    if (head) again[name] = head[0];
                } else again[name] = axes.split(".").map((axis) => String(point[axis]).split(" ")[0]).join(".");
            }
            return again;
        },

        // The maps are fetched once for all that concerns them; the head and the locked row are the browser's alone.
        showMaps: async function ({ shown, every, one }) {
            const page = pageOf(), asked = every ?? one;
            if (!page || !asked) return;
            const { maps } = factsOf(page), element = document.getElementById(`${maps[1]}-canvas`);
            const { head: _head, query: _query, ...question } = asked;
            const chosen = { head: shown?.head ?? [0, 0], position: shown?.query ?? null };
            const wanted = JSON.stringify([question, chosen]), lock = element === drawnIn ? {} : { cell: null };
            if (element === drawnIn && wanted === drawn) return; // the store and the panels each say it
            [drawnIn, drawn] = [element, wanted];
            await headsOf(page, maps).show(question, { ...chosen, ...lock });
        },
    });
})();
