// Heads that are switched off (app/shell/choices.py, `head_switches`): inside an element that names a store in data-switches,
// each .head-switch has a layer and a head; a click puts those that are off, [[layer, head], …] in order, into that store.
(function () {
    "use strict";
    const stored = (store) => window.dash_component_api.getLayout(store)?.props.data || [];

    aotlens.toggleHead = function (store, layer, head) {
        const others = stored(store).filter(([l, h]) => l !== layer || h !== head);
        const off = others.length < stored(store).length ? others : [...others, [layer, head]];
        off.sort(([l, h], [other, number]) => l - other || h - number);
        aotlens.setProps(store, { data: off });
        aotlens.markSwitches(store, off);
    };

    // Marks the switches of a store; one of them is a stop of the Tab key.
    aotlens.markSwitches = function (store, off) {
        const names = new Set((off || []).map((pair) => pair.join(".")));
        for (const group of document.querySelectorAll(`[data-switches="${store}"]`)) {
            const buttons = [...group.querySelectorAll(".head-switch")];
            for (const button of buttons) {
                button.setAttribute("aria-pressed", String(names.has(`${button.dataset.layer}.${button.dataset.head}`)));
            }
            if (buttons.length && !buttons.some((button) => button.tabIndex === 0)) buttons[0].tabIndex = 0;
        }
    };

    const switchOf = (target) => target instanceof Element ? target.closest("[data-switches] .head-switch") : null;

    document.addEventListener("click", function (event) {
        const button = switchOf(event.target);
        if (!button) return;
        const store = button.closest("[data-switches]").dataset.switches;
        aotlens.toggleHead(store, Number(button.dataset.layer), Number(button.dataset.head));
    });

    document.addEventListener("keydown", function (event) {
        const button = switchOf(event.target);
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!button || !step) return;
        event.preventDefault();
        const layer = Number(button.dataset.layer) + step[0], head = Number(button.dataset.head) + step[1];
        const next = button.closest("[data-switches]").querySelector(`.head-switch[data-layer="${layer}"][data-head="${head}"]`);
        if (!next) return;
        button.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
    });

    // Dash's own: the switches are drawn, or another set is off.
    aotlens.showSwitches = function (id, off, buttons) {
        aotlens.draw(id, buttons);
        const store = document.getElementById(id).dataset.switches;
        aotlens.afterFrame(() => aotlens.markSwitches(store, off));
    };
})();
