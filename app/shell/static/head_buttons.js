// The buttons of all heads (app/shell/fields.py, `head_buttons`): a click or an arrow key puts the head that is picked,
// [layer, head], into the store that the group names in data-store; of a group of switches a click ablates a head or restores
// it, and the store has those that are ablated, [[layer, head], …] in order.
(function () {
    "use strict";
    const headOf = ({ dataset }) => [Number(dataset.layer), Number(dataset.head)];
    const isPicker = (group) => group.matches(".pick-heads");
    const buttonOf = (target) => aotlens.closest(target, "[data-store] button");

    function lines([layers, heads], className, what) {
        const button = (layer, head) => {
            const name = `${layer}.${head}`, title = `Layer ${layer}, head ${head}`;
            const made = aotlens.element("button", { type: "button", className, title, textContent: name, tabIndex: -1, ariaLabel: `${what} ${name}` });
            Object.assign(made.dataset, { layer, head });
            return made;
        };
        return Array.from({ length: layers }, (_, layer) =>
            aotlens.element("div", { className: "pick-layer" }, ...Array.from({ length: heads }, (_, head) => button(layer, head))));
    }

    // One button of a group is a stop of the Tab key: the head that is picked, or the switch that had the focus.
    function mark(group, heads) {
        const names = heads.map(String), buttons = [...group.querySelectorAll("button")];
        for (const button of buttons) {
            const here = names.includes(String(headOf(button)));
            if (button.getAttribute("aria-pressed") === String(here)) continue;
            button.setAttribute("aria-pressed", String(here));
            if (!isPicker(group)) continue;
            button.tabIndex = here ? 0 : -1;
            if (here) requestAnimationFrame(() => reveal(group, button)); // when the page is laid out anyway
        }
        if (buttons.length && !buttons.some((button) => button.tabIndex === 0)) buttons[0].tabIndex = 0;
    }

    // A picker of many layers scrolls; the page does not.
    function reveal(group, button) {
        const row = button.getBoundingClientRect(), box = group.getBoundingClientRect();
        if (row.top < box.top || row.bottom > box.bottom) group.scrollTop += (row.top + row.bottom - box.top - box.bottom) / 2;
        if (row.left < box.left || row.right > box.right) group.scrollLeft += (row.left + row.right - box.left - box.right) / 2;
    }

    function choose(group, head) {
        const { store } = group.dataset, held = aotlens.component(store)?.props.data ?? [];
        const others = isPicker(group) ? [] : held.filter((other) => String(other) !== String(head));
        const heads = !isPicker(group) && others.length < held.length ? others : [...others, head];
        heads.sort(([layer, number], [other, next]) => layer - other || number - next);
        mark(group, heads);
        aotlens.settle(store, { data: isPicker(group) ? head : heads });
    }

    document.addEventListener("click", function ({ target }) {
        const button = buttonOf(target);
        if (button) choose(button.closest("[data-store]"), headOf(button));
    });

    document.addEventListener("keydown", function (event) {
        const button = buttonOf(event.target);
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!button || !step) return;
        event.preventDefault();
        const group = button.closest("[data-store]"), [layer, head] = headOf(button).map((place, axis) => place + step[axis]);
        const next = group.querySelector(`[data-layer="${layer}"][data-head="${head}"]`);
        if (!next) return;
        button.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
        if (isPicker(group)) choose(group, [layer, head]);
    });

    // Draws the buttons of a group for so many layers and heads, and marks the heads that are picked or ablated.
    aotlens.showHeads = function (id, sizes, heads) {
        const group = document.getElementById(id), kind = isPicker(group) ? ["pick-head", "Head"] : ["head-switch", "Ablate head"];
        if (group.dataset.sizes !== String(sizes)) aotlens.redraw(group, lines(sizes, ...kind));
        group.dataset.sizes = sizes;
        aotlens.afterFrame(() => mark(group, heads));
    };
})();
