// The Paths page between two questions to the server: pick a token, take away, write the address.
(function () {
    "use strict";
    const setProps = (id, props) => dash_clientside.set_props(id, props);

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

    document.addEventListener("keydown", function (event) {
        const chip = chipOf(event.target);
        if (chip) dash_clientside.shell.moveChip(event, chip);
    });

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        paths: {
            takeHead: function (click) {
                if (click && click.colId === "head") setProps("paths-without", { data: click.value });
            },

            show: function (shown, without) {
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
                if (shown.k !== 20) query.set("k", shown.k);
                if (without) query.set("without", without);
                // Not through dcc.Location: setting its search would draw the page anew.
                history.replaceState(history.state, "", "/paths?" + query.toString());
            },
        },
    });
})();
