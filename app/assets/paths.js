// The Paths page between two questions to the server: submit, pick a token, take away, write the address.
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

    function moveToken(event, chip) {
        const chips = chip.parentElement.children;
        const here = Number(chip.dataset.position);
        const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: chips.length - 1 }[event.key];
        if (to === undefined || !chips[to]) return;
        event.preventDefault();
        chip.tabIndex = -1;
        chips[to].tabIndex = 0;
        chips[to].focus();
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
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.id === "paths-text") {
            event.preventDefault();
            document.getElementById("paths-run").click();
            return;
        }
        const chip = chipOf(event.target);
        if (chip) moveToken(event, chip);
    });

    function triggered() {
        const context = dash_clientside.callback_context;
        return context.triggered.length ? context.triggered[0].prop_id.split(".")[0] : null;
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        paths: {
            submit: function (clicks, checkpoint, example, text, prompt) {
                const none = dash_clientside.no_update;
                const by = triggered();
                if (by === "paths-example" && !example) return [none, none, none];
                if (by === "paths-checkpoint" && checkpoint === prompt.checkpoint) return [none, none, none];
                // What stands in the box, not what Dash was last told: Ctrl+Enter can come before it hears of the typing.
                const box = document.getElementById("paths-text");
                const chosen = by === "paths-example" ? example : (box ? box.value : text) || "";
                const most = Number(document.querySelector(".paths-page").dataset.maxCharacters);
                // Too long to send: the server is told the length and answers with the limit.
                const next = chosen.length > most
                    ? { checkpoint: checkpoint, text: "", length: chosen.length }
                    : { checkpoint: checkpoint, text: chosen };
                return [next, by === "paths-example" ? chosen : none, by === "paths-example" ? null : none];
            },

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
