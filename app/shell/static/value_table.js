// Tables of values that come through a store (app/shell/tables.py, `value_tables`): rows that can be sorted by a click on a
// column's name, and cells to be clicked, between which arrow keys move; and tokens as chips. What a click on a cell or a chip
// means, the page says: `aotlens.onPick(id, function (data) { … })` gets what it carries.
(function () {
    "use strict";
    // Rows further down than the table is high, or where its height is its rows' the window, are made when somebody turns to
    // the table, or prints: most choices make another one first.
    const LINE = 24, USED = ["pointerover", "focusin", "scroll", "click"];
    const there = new WeakMap(); // by the group's element: what is drawn in it
    const heights = new Map(); // by the group's id and a height's name: as it was laid out last
    const laidOut = new ResizeObserver((entries) => entries.forEach(({ target, contentRect }) => target.resized(contentRect.height)));
    const picks = new Map(); // by the group's id: what a click does

    function make(type, text, attributes = {}) {
        const element = document.createElement(type);
        if (text !== undefined) element.textContent = text;
        for (const [name, value] of Object.entries(attributes)) if (value) element.setAttribute(name, value);
        return element;
    }

    const clickable = ({ text, title, class: kind, pick }, attributes = {}) =>
        Object.assign(make("button", text, { type: "button", title, class: kind, ...attributes }), { tabIndex: -1, pick });

    // A part of a cell: text, a link to another page, a bar, a marked piece of text, or what can be clicked.
    function part(value, along) {
        if (value === null || typeof value !== "object") return String(value ?? "");
        if (value.page) {
            const href = aotlens.address.format(value.page, { ...along, ...value.fields });
            return make("a", value.text, { href, title: value.title, "data-in-app": "true" });
        }
        if (value.pick !== undefined) return clickable(value);
        if (value.bar === undefined) {
            const mark = make("span", value.text, { title: value.title, class: value.class });
            if (value.note) mark.append(make("sub", value.note));
            if (value.heat) mark.style.setProperty("--heat", `${100 * value.heat}%`);
            return mark;
        }
        const track = make("span", undefined, { class: "track" }), width = 50 * Math.abs(value.bar);
        const bar = make("span", undefined, { class: value.bar < 0 ? "bar bar-negative" : "bar" });
        Object.assign(bar.style, { width: `${width}%`, left: `${value.bar < 0 ? 50 - width : 50}%` });
        track.append(bar);
        return track;
    }

    function cell(value, kind, along) {
        const td = make("td", undefined, { class: kind });
        if (kind === "tokens" && Array.isArray(value)) td.append(...value.map((token) => (typeof token === "string" ? make("span", token, { class: "token" }) : part(token))));
        else td.append(...[value].flat().map((each) => part(each, along)));
        return td;
    }

    // One stop of the Tab key for all tokens: arrow keys move along them.
    function strip({ chips, selected, heading }) {
        const group = make("div", undefined, { class: "strip", role: "group", "aria-label": heading || "Tokens" });
        group.append(...chips.map(function (data, position) {
            const isSelected = position === selected, { value, heat } = data;
            const attributes = { "data-position": String(position), "data-value": value, "aria-pressed": String(isSelected) };
            const chip = clickable(data, attributes);
            chip.classList.toggle("chip-locked", isSelected);
            chip.style.setProperty("--heat", `${heat}%`);
            if (isSelected) chip.tabIndex = 0;
            return chip;
        }));
        return group;
    }

    const numberOf = (td) => parseFloat(td.textContent.replace("−", "-").replaceAll(",", ""));

    function sort(th) {
        const body = th.closest("table").tBodies[0], place = th.cellIndex;
        const down = th.getAttribute("aria-sort") !== "descending", sign = down ? -1 : 1;
        for (const other of th.parentElement.children) other.removeAttribute("aria-sort");
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => numberOf(row.cells[place]);
        body.append(...[...body.rows].sort((one, other) => (Number.isNaN(value(one)) - Number.isNaN(value(other)))
            || sign * (value(one) - value(other)) || 0));
    }

    function table({ columns, rows, along }, height) {
        const head = make("tr");
        for (const { title, help, kind } of columns) {
            const th = make("th", undefined, { scope: "col", class: kind, title: help });
            if (kind === "number") th.append(make("button", title, { type: "button" }));
            else th.textContent = title;
            head.append(th);
        }
        const element = make("table", undefined, { class: "values" }), body = make("tbody");
        const line = function (row) {
            const tr = make("tr");
            tr.append(...row.map((value, place) => cell(value, columns[place].kind, along)));
            return tr;
        };
        const first = Math.max(1, Math.ceil(height / LINE));
        body.append(...rows.slice(0, first).map(line));
        element.append(make("thead"), body);
        element.tHead.append(head);
        const button = body.querySelector("button");
        if (button) button.tabIndex = 0;
        const rest = rows.slice(first);
        const fill = () => body.append(...rest.splice(0).map(line));
        return { element, fill, made: first * LINE };
    }

    aotlens.onPick = (id, pick) => picks.set(id, pick);

    aotlens.drawTables = function (id, tables) {
        const group = document.getElementById(id);
        if (!group || there.get(group) === tables) return;
        there.set(group, tables);
        aotlens.redraw(group, (tables || []).map(function (data) {
            const section = make("div");
            if (data.heading) section.append(make("h3", data.heading, { class: "table-heading" }));
            if (data.chips) {
                section.className = "chips";
                section.append(strip(data));
                return section;
            }
            const box = make("div", undefined, { class: "values-box", "data-height": data.height });
            const kind = data.height && `${id} ${data.height}`, { element, fill, made } = table(data, heights.get(kind) ?? window.innerHeight);
            box.append(element);
            for (const event of USED) box.addEventListener(event, fill, { once: true, passive: true, capture: true });
            if (kind) {
                box.resized = function (height) {
                    if (!height) return; // it is hidden, or gone
                    heights.set(kind, height);
                    if (height > made) fill();
                };
                laidOut.observe(box);
            }
            section.append(box);
            return section;
        }));
    };

    window.addEventListener("beforeprint", () => document.querySelectorAll(".values-box").forEach((box) => box.dispatchEvent(new Event("scroll"))));

    const within = (target, what) => (target instanceof Element ? target.closest(`.value-tables ${what}`) : null);

    document.addEventListener("click", function ({ target }) {
        const head = within(target, "th button"), button = within(target, ":is(td button, .chip)");
        if (head) sort(head.parentElement);
        if (button) picks.get(button.closest(".value-tables").id)?.(button.pick);
    });

    document.addEventListener("keydown", function (event) {
        const button = within(event.target, "td button"), chip = within(event.target, ".chip");
        if (chip) aotlens.moveChip(event, chip);
        const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [];
        if (!button || down === undefined) return;
        event.preventDefault();
        const row = button.closest("tr"), inRow = [...row.querySelectorAll("button")];
        const beside = down ? (down > 0 ? row.nextElementSibling : row.previousElementSibling) : row;
        const next = beside && [...beside.querySelectorAll("button")][inRow.indexOf(button) + across];
        if (!next) return;
        button.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
    });
})();
