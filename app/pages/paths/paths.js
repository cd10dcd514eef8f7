// The Paths page between two questions to the server: pick a token, take away.
(function () {
    "use strict";
    const { setProps } = aotlens;

    let cell = { head: null, query: null, key: null, against: null }; // of the score that is asked for
    let taken = null; // the head or path that the model is shown without

    const sideOf = (target) => target instanceof Element ? target.closest("#paths-score-top .score-strip") : null;

    // What is not named stays as it is; another head, query or key is compared with what is sensible for it.
    function chooseCell(parts) {
        cell = { ...cell, against: null, ...parts };
        setProps("paths-cell", { data: cell });
    }

    function chooseToken(strip, chip) {
        const position = Number(chip.dataset.position);
        for (const other of strip.children) other.classList.toggle("chip-locked", other === chip);
        if (strip.dataset.side === "key") chooseCell({ key: position });
        else chooseCell({ query: position, key: cell.key !== null && cell.key > position ? null : cell.key });
    }

    document.addEventListener("change", function ({ target }) {
        const name = target instanceof Element && target.matches("#paths-score-top select") && target.dataset.score;
        if (name === "head") chooseCell({ head: target.value.split(".").map(Number) });
        if (name === "against") chooseCell({ against: /^\d+$/.test(target.value) ? Number(target.value) : target.value });
    });

    const chipOf = (target) => target instanceof Element ? target.closest("#paths-strip .chip") : null;

    function choosePosition(chip) {
        const position = Number(chip.dataset.position);
        // Marked at once; the server's answer follows.
        for (const other of chip.parentElement.children) other.classList.toggle("chip-locked", other === chip);
        setProps("paths-position", { data: position });
    }

    function mark(without) {
        for (const button of document.querySelectorAll("#paths-paths .take-away")) {
            const here = button.dataset.without === without;
            button.setAttribute("aria-pressed", String(here));
            button.closest("tr").classList.toggle("taken", here);
        }
    }

    document.addEventListener("click", function (event) {
        const chip = chipOf(event.target);
        if (chip) choosePosition(chip);
        const strip = sideOf(event.target), token = strip && event.target.closest(".chip");
        if (token) chooseToken(strip, token);
        const button = event.target instanceof Element && event.target.closest("#paths-paths .take-away");
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
        const chip = chipOf(event.target) || (sideOf(event.target) && event.target.closest(".chip"));
        if (chip) aotlens.moveChip(event, chip);
    });

    aotlens.page("paths", {
        useCell: function ({ click }) {
            if (click) useCell(click.colId, click.rowId);
        },

        // What the tab showed left the document with it: it is all drawn anew when the tab opens again.
        openScore: function ({ prompt, of }) {
            if (of !== "score") setProps("paths-scored", { data: null });
            return { prompt: of === "score" ? prompt : null };
        },

        showScore: function ({ cell: asked, top, pairs, trace }) {
            if (asked) cell = asked;
            aotlens.draw("paths-score-top", top);
            aotlens.draw("paths-pair-lines", pairs);
            aotlens.draw("paths-trace-lines", trace);
        },

        // A box of the trace is a cell: it is explained instead.
        followTrace: function ({ click }) {
            const point = click && click.points && click.points[0];
            if (!point || !Array.isArray(point.customdata)) return;
            const [head, query, key] = point.customdata;
            chooseCell({ head, query, key });
        },

        show: function ({ without, strip, paths }) {
            aotlens.draw("paths-strip", strip);
            aotlens.draw("paths-paths", paths);
            taken = without;
            mark(without);
        },
    });
})();
