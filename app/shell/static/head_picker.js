// The head pickers (app/shell/choices.py, `head_picker`): a click or an arrow key puts [layer, head] into the store that
// the picker names in data-store. A page with a picker needs no script of its own for it.
(function () {
    "use strict";
    const shown = new Map(); // by the picker's id: what the server last said, with layer and head; or nothing

    // Not what the server last said decides whether there is something to ask, while it answers an earlier question.
    function choose(id, layer, head) {
        const store = document.getElementById(id).dataset.store, now = shown.get(id);
        const [askedLayer, askedHead] = window.dash_component_api.getLayout(store).props.data || [];
        mark(id, layer, head);
        const isShown = now && now.layer === layer && now.head === head;
        if (isShown && askedLayer === layer && askedHead === head) return;
        dash_clientside.set_props(store, { data: [layer, head] });
    }

    function mark(id, layer, head) {
        for (const button of document.querySelectorAll(`#${id} .pick-head`)) {
            const here = Number(button.dataset.layer) === layer && Number(button.dataset.head) === head;
            if (button.getAttribute("aria-pressed") === String(here)) continue;
            button.setAttribute("aria-pressed", String(here));
            button.tabIndex = here ? 0 : -1;
            if (here) requestAnimationFrame(() => reveal(button)); // when the page is laid out anyway
        }
    }

    // A picker of many layers scrolls; the page does not.
    function reveal(button) {
        if (!button.isConnected) return;
        const picker = pickerOf(button), row = button.getBoundingClientRect(), box = picker.getBoundingClientRect();
        if (row.top < box.top || row.bottom > box.bottom) {
            picker.scrollTop += (row.top + row.bottom - box.top - box.bottom) / 2;
        }
        if (row.left < box.left || row.right > box.right) {
            picker.scrollLeft += (row.left + row.right - box.left - box.right) / 2;
        }
    }

    const buttonOf = (target) => target instanceof Element ? target.closest(".pick-heads .pick-head") : null;
    const pickerOf = (button) => button.closest(".pick-heads");

    document.addEventListener("click", function (event) {
        const button = buttonOf(event.target);
        if (button) choose(pickerOf(button).id, Number(button.dataset.layer), Number(button.dataset.head));
    });

    document.addEventListener("keydown", function (event) {
        const button = buttonOf(event.target);
        const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (!button || !step) return;
        event.preventDefault();
        const picker = pickerOf(button);
        const layer = Number(button.dataset.layer) + step[0];
        const head = Number(button.dataset.head) + step[1];
        const next = picker.querySelector(`.pick-head[data-layer="${layer}"][data-head="${head}"]`);
        if (!next) return;
        next.focus();
        choose(picker.id, layer, head);
    });

    aotlens.showHead = function (id, choice, buttons) {
        aotlens.draw(id, buttons);
        shown.set(id, choice);
        if (choice) requestAnimationFrame(() => mark(id, choice.layer, choice.head));
    };
})();
