// Tables of values that come through a store (app/shell/tables.py, `value_tables`), of any length: rows that can be sorted by a
// click on a column's name, and cells to be clicked, between which arrow keys move; and tokens as chips. A click on a cell or a
// chip calls the function of `aotlens.onPick(id, function (data) { … })` with what it carries: view_page.js sets fields to it.
(function () {
    "use strict";
    // Rows further down than the table is high, or where its height is its rows' the window, are made when somebody turns to
    // the table, or prints: most choices make another one first. Then STEP rows more than were scrolled to.
    const LINE = 24, STEP = 60, USED = ["pointerover", "focusin", "scroll", "click"];
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
        const track = make("span", undefined, { class: value.whole ? "track whole" : "track" }), width = (value.whole ? 100 : 50) * Math.abs(value.bar);
        const bar = make("span", undefined, { class: value.bar < 0 ? "bar bar-negative" : "bar" });
        Object.assign(bar.style, { width: `${width}%`, left: `${value.whole ? 0 : value.bar < 0 ? 50 - width : 50}%` });
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
            if (position === (selected ?? 0)) chip.tabIndex = 0;
            return chip;
        }));
        return group;
    }

    // Where an element is among the children of the group, of its child, …; null outside.
    function placeIn(group, element) {
        const place = [];
        for (; element && element !== group; element = element.parentElement) {
            place.unshift([...element.parentElement?.children ?? []].indexOf(element));
        }
        return element ? place : null;
    }

    // The focus stays where it was.
    aotlens.redraw = function (group, children) {
        const place = placeIn(group, document.activeElement);
        group.replaceChildren(...children);
        const focused = place && place.reduce((element, index) => element?.children[index], group);
        if (focused && focused !== group) focused.focus({ preventScroll: true });
    };

    const textOf = (value) => String(value?.text ?? value);
    const numberOf = (value) => parseFloat(textOf(value).replace("−", "-").replaceAll(",", ""));

    function table({ columns, rows, along, marks }) {
        const element = make("table", undefined, { class: "values" }), head = make("tr"), body = make("tbody");
        let order = rows, wanted = null;
        for (const { title, help, kind } of columns) {
            const th = make("th", undefined, { scope: "col", class: kind, title: help });
            if (kind === "number" || kind === "name") th.append(make("button", title, { type: "button" }));
            else th.textContent = title;
            head.append(th);
        }
        element.append(make("thead"), body);
        element.tHead.append(head);

        function line(row) {
            const tr = make("tr"), chosen = row.flat().filter((value) => value?.pick);
            tr.append(...row.map((value, place) => cell(value, columns[place].kind, along)));
            if (chosen.length === 1) tr.className = "chooses";
            return Object.assign(tr, { choice: marks && chosen[0]?.pick[marks[0]] });
        }

        const mark = (tr) => { if (marks) tr.ariaCurrent = tr.choice === wanted ? "true" : null; };
        const grow = function (count) {
            const made = body.rows.length;
            if (count <= made) return;
            const more = order.slice(made, count).map(line);
            more.forEach(mark);
            body.append(...more);
            element.style.marginBottom = `${LINE * (order.length - body.rows.length)}px`; // so that one can scroll to the others
            if (!made && body.querySelector("button")) body.querySelector("button").tabIndex = 0;
        };
        element.sort = function (place, sign) {
            const isName = columns[place].kind === "name", made = body.rows.length;
            const values = new Map(rows.map((row) => [row, isName ? textOf(row[place]) : numberOf(row[place])]));
            order = [...rows].sort((one, other) => isName ? sign * values.get(one).localeCompare(values.get(other), "en", { numeric: true })
                : (Number.isNaN(values.get(one)) - Number.isNaN(values.get(other))) || sign * (values.get(one) - values.get(other)) || 0);
            body.replaceChildren();
            grow(made);
        };
        element.mark = function (shown) {
            wanted = marks && (shown[marks[0]] ?? marks[1]);
            [...body.rows].forEach(mark);
        };
        return { element, grow };
    }

    function sort(th, direction) {
        for (const other of th.parentElement.children) other.removeAttribute("aria-sort");
        th.setAttribute("aria-sort", direction);
        th.closest("table").sort(th.cellIndex, direction === "descending" ? -1 : 1);
    }

    // Numbers from the largest and names from A first; a second click turns the order around.
    function direction(th) {
        const [first, second] = th.className === "name" ? ["ascending", "descending"] : ["descending", "ascending"];
        return th.getAttribute("aria-sort") === first ? second : first;
    }

    aotlens.onPick = (id, pick) => picks.set(id, pick);

    aotlens.drawTables = function (id, tables) {
        const group = document.getElementById(id);
        if (!group || there.get(group) === tables) return;
        there.set(group, tables);
        const sorted = new Map([...group.querySelectorAll("th[aria-sort]")].map((th) => [th.parentElement.textContent, th]));
        aotlens.redraw(group, (tables || []).map(function (data) {
            const section = make("div");
            if (data.heading) section.append(make("h3", data.heading, { class: "table-heading" }));
            if (data.chips) {
                section.className = "chips";
                section.append(strip(data));
                return section;
            }
            const box = make("div", undefined, { class: "values-box", "data-height": data.height });
            const kind = data.height && `${id} ${data.height}`, { element, grow } = table(data);
            const use = () => grow(Math.ceil((box.scrollTop + box.clientHeight) / LINE) + STEP);
            grow(Math.max(1, Math.ceil((heights.get(kind) ?? window.innerHeight) / LINE)));
            box.append(element);
            for (const event of USED) box.addEventListener(event, use, { passive: true, capture: true });
            box.addEventListener("print", () => grow(data.rows.length));
            if (kind) {
                box.resized = function (height) {
                    if (!height) return; // it is hidden, or gone
                    heights.set(kind, height);
                    grow(Math.ceil(height / LINE));
                };
                laidOut.observe(box);
            }
            section.append(box);
            const before = sorted.get(element.tHead.textContent); // a table of the same columns stays sorted
            if (before) sort(element.tHead.rows[0].cells[before.cellIndex], before.getAttribute("aria-sort"));
            return section;
        }));
    };

    // The rows are marked whose picks set what is shown.
    aotlens.markRows = (id, shown) => document.querySelectorAll(`#${id} table.values`).forEach((element) => element.mark(shown));

    window.addEventListener("beforeprint", () => document.querySelectorAll(".values-box").forEach((box) => box.dispatchEvent(new Event("print"))));

    const within = (target, what) => aotlens.closest(target, `.value-tables ${what}`);

    document.addEventListener("click", function ({ target }) {
        const head = within(target, "th button"), row = getSelection().isCollapsed && within(target, "tr.chooses");
        const button = within(target, ":is(td button, .chip)") ?? (row && !target.closest("a") ? row.querySelector("button") : null);
        if (head) sort(head.parentElement, direction(head.parentElement));
        if (button) picks.get(button.closest(".value-tables").id)?.(button.pick);
    });

    const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -Infinity], End: [0, Infinity] };
    const buttonsOf = (line) => [...line?.querySelectorAll("button") ?? []];

    document.addEventListener("keydown", function (event) {
        const button = within(event.target, ":is(td button, .chip)"), [down, across] = MOVES[event.key] ?? [];
        if (!button || down === undefined) return;
        event.preventDefault();
        const row = button.closest("tr, .strip"), to = down ? buttonsOf(down > 0 ? row.nextElementSibling : row.previousElementSibling) : buttonsOf(row);
        const next = Number.isFinite(across) ? to[buttonsOf(row).indexOf(button) + across] : to.at(across > 0 ? -1 : 0);
        if (!next) return;
        button.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
    });
})();
