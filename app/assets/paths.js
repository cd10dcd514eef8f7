// The Paths page between two questions to the server: pick a token, take away, write the address.
(function () {
    "use strict";
    const setProps = (id, props) => dash_clientside.set_props(id, props);

    let taken = null; // the head or path that the model is shown without

    const chipOf = (target) => target instanceof Element ? target.closest("#paths-strip .chip") : null;

    function choosePosition(chip) {
        const position = Number(chip.dataset.position);
        // Marked at once; the server's answer follows.
        for (const other of chip.parentElement.children) other.classList.toggle("chip-locked", other === chip);
        setProps("paths-position", { data: position });
    }

    function mark(without) {
        for (const button of document.querySelectorAll("#top-paths-table .take-away")) {
            const here = button.dataset.without === without;
            button.setAttribute("aria-pressed", String(here));
            button.closest("tr").classList.toggle("taken", here);
        }
    }

    document.addEventListener("click", function (event) {
        const chip = chipOf(event.target);
        if (chip) choosePosition(chip);
        const button = event.target instanceof Element && event.target.closest("#top-paths-table .take-away");
        if (button) {
            const again = button.getAttribute("aria-pressed") === "true";
            mark(again ? null : button.dataset.without);
            setProps("paths-without", { data: again ? null : button.dataset.without });
        }
    });

    // In the table of heads: a head is taken away, or put back; its sum lists the paths through it.
    function useCell(column, head) {
        if (column === "head") setProps("paths-without", { data: taken === head ? null : head });
        if (column === "through") setProps("paths-through", { value: head });
    }

    document.addEventListener("keydown", function (event) {
        const chip = chipOf(event.target);
        if (chip) dash_clientside.shell.moveChip(event, chip);
    });

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        paths: {
            // From a head on the Heads page to the paths through it, after the locked token.
            link: function (prompt, head, position) {
                const query = new URLSearchParams();
                if (prompt && prompt.checkpoint) query.set("checkpoint", prompt.checkpoint);
                if (prompt && !prompt.length) query.set("text", prompt.text);
                if (position !== null && position !== undefined) query.set("position", position);
                if (head) query.set("through", head.join("."));
                return "/paths?" + query.toString();
            },

            useCell: function (click) {
                if (click) useCell(click.colId, click.rowId);
            },

            show: function (shown, without) {
                taken = without;
                const body = document.getElementById("paths-body");
                if (body) body.toggleAttribute("data-empty", !shown);
                requestAnimationFrame(() => mark(without));
            },

            writeAddress: function (shown, without) {
                if (location.pathname !== "/paths" || !shown) return;
                const query = new URLSearchParams({ checkpoint: shown.checkpoint, text: shown.text });
                query.set("position", shown.position);
                query.set("target", shown.target);
                if (shown.versus !== null) query.set("versus", shown.versus);
                if (shown.by !== "abs") query.set("by", shown.by);
                if (shown.through !== null) query.set("through", shown.through);
                if (shown.k !== 20) query.set("k", shown.k);
                if (without) query.set("without", without);
                // Not through dcc.Location: setting its search would draw the page anew.
                history.replaceState(history.state, "", "/paths?" + query.toString());
            },
        },
    });
})();
