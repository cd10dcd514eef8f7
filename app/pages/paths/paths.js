// The Paths page between two questions to the server: pick a token, take away.
(function () {
    "use strict";
    const { setProps } = aotlens;

    let taken = null; // the head or path that the model is shown without

    const chipOf = (target) => target instanceof Element ? target.closest("#paths-strip .chip") : null;

    function choosePosition(chip) {
        const position = Number(chip.dataset.position);
        // Marked at once; the server's answer follows.
        for (const other of chip.parentElement.children) other.classList.toggle("chip-locked", other === chip);
        setProps("paths-position", { data: position });
    }

    function mark(without) {
        for (const button of document.querySelectorAll("#paths-top-body .take-away")) {
            const here = button.dataset.without === without;
            button.setAttribute("aria-pressed", String(here));
            button.closest("tr").classList.toggle("taken", here);
        }
    }

    document.addEventListener("click", function (event) {
        const chip = chipOf(event.target);
        if (chip) choosePosition(chip);
        const button = event.target instanceof Element && event.target.closest("#paths-top-body .take-away");
        if (button) {
            const again = button.getAttribute("aria-pressed") === "true";
            mark(again ? null : button.dataset.without);
            setProps("paths-taken", { data: again ? null : button.dataset.without });
            if (!again) aotlens.openTab("paths-besides", "without");
        }
    });

    // In the table of heads: a head is taken away, or put back; its sum lists the paths through it.
    function useCell(column, head) {
        if (column === "head") {
            setProps("paths-taken", { data: taken === head ? null : head });
            aotlens.openTab("paths-besides", "without");
        }
        if (column === "through") {
            setProps("paths-through", { value: head });
            aotlens.openTab("paths-views", "top");
        }
    }

    document.addEventListener("keydown", function (event) {
        const chip = chipOf(event.target);
        if (chip) aotlens.moveChip(event, chip);
    });

    aotlens.page("paths", {
        useCell: function ({ click }) {
            if (click) useCell(click.colId, click.rowId);
        },

        show: function ({ shown, without, strip }) {
            aotlens.draw("paths-strip", strip);
            taken = without;
            const body = document.getElementById("paths-body");
            if (body) body.toggleAttribute("data-empty", !shown);
            requestAnimationFrame(() => mark(without));
        },
    });
})();
