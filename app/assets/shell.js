// What every page has: theme, navigation, maximising a panel, saving pictures; and what several have: a text to run, tokens.
(function () {
    "use strict";
    const media = matchMedia("(prefers-color-scheme: dark)");
    let choice = "system";

    function effective() {
        if (choice !== "system") return choice;
        return media.matches ? "dark" : "light";
    }

    function applyTheme() {
        const theme = effective();
        document.documentElement.style.colorScheme = theme;
        document.documentElement.dataset.agThemeMode = theme;
        return theme;
    }

    media.addEventListener("change", function () {
        if (choice !== "system") return;
        const theme = applyTheme();
        dash_clientside.set_props("theme", { data: theme });
        dash_clientside.set_props("provider", { forceColorScheme: theme });
    });

    function maximise(panel, on) {
        document.querySelectorAll("[data-maximised]").forEach((other) => other.removeAttribute("data-maximised"));
        if (panel && on) panel.setAttribute("data-maximised", "");
        document.documentElement.classList.toggle("has-maximised", Boolean(panel && on));
        // Graphs measure their container when the window changes size.
        requestAnimationFrame(() => window.dispatchEvent(new Event("resize")));
    }

    document.addEventListener("click", function (event) {
        const button = event.target.closest(".maximise");
        if (button) {
            const panel = button.closest(".panel");
            maximise(panel, !panel.hasAttribute("data-maximised"));
            return;
        }
        // A link to the page that is shown would change the address and nothing else.
        const link = event.target.closest(".nav-link[aria-current='page']");
        if (link) {
            event.preventDefault();
            event.stopPropagation();
        }
    }, true);

    // Ctrl+Enter in a page's text runs it.
    document.addEventListener("keydown", function (event) {
        const asked = event.key === "Enter" && (event.ctrlKey || event.metaKey);
        if (!asked || !event.target.matches("[data-max-characters] textarea")) return;
        event.preventDefault();
        document.getElementById(event.target.id.replace(/-text$/, "-run")).click();
    });

    document.addEventListener("keydown", function (event) {
        if (event.key === "Escape" && document.querySelector("[data-maximised]")) maximise(null, false);
    });

    function download(uri, name) {
        const link = document.createElement("a");
        link.href = uri;
        link.download = name;
        link.click();
    }

    function safeName(text) {
        return "aotlens-" + text.toLowerCase().replace(/[^a-z0-9.]+/g, "-");
    }

    function savePlot(format, id, title) {
        const plot = document.querySelector("#" + id + " .js-plotly-plot");
        if (!plot || !plot.data.length) return;
        const style = getComputedStyle(plot.closest(".panel"));
        const name = (plot.layout.meta && plot.layout.meta.name) || title;
        const layout = Object.assign({}, plot.layout, {
            paper_bgcolor: style.backgroundColor, autosize: false, shapes: plot.layout.shapes,
            title: { text: name, font: { size: 14 } }, margin: { l: 20, r: 20, t: 44, b: 20 },
        });
        window.Plotly.downloadImage({ data: plot.data, layout: layout },
            { format: format, width: 900, height: 820, scale: 2, filename: safeName(name) });
    }

    function triggered() {
        const context = dash_clientside.callback_context;
        return context.triggered.length ? context.triggered[0].prop_id.split(".")[0] : null;
    }

    // In a grid, Enter does to the focused cell what a click does.
    document.addEventListener("keydown", function (event) {
        if (event.key !== "Enter" || !(event.target instanceof Element)) return;
        if (event.target.matches(".ag-cell")) event.target.click();
    });

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        shell: {
            chooseTheme: function (chosen) {
                choice = chosen || "system";
                try {
                    localStorage.setItem("mantine-color-scheme-value", choice === "system" ? "auto" : choice);
                } catch (error) {
                    // Storage is forbidden: the choice lasts as long as the page.
                }
                const theme = applyTheme();
                return [theme, theme];
            },
            markPage: function (pathname) {
                const path = pathname === "/" || !pathname ? "/heads" : pathname.replace(/\/+$/, "");
                maximise(null, false);
                document.querySelectorAll(".nav-link").forEach(function (link) {
                    const here = link.getAttribute("href") === path;
                    if (here) {
                        link.setAttribute("aria-current", "page");
                        document.title = link.textContent + " · aotlens";
                    } else {
                        link.removeAttribute("aria-current");
                    }
                });
                return undefined;
            },
            // A page's text, its checkpoint or an example -> what is asked, the text, the example (pages/shared.py).
            submit: function (clicks, checkpoint, example, text, prompt, id) {
                const none = dash_clientside.no_update;
                const page = id.replace(/-text$/, "");
                const by = triggered();
                if (by === page + "-example" && !example) return [none, none, none];
                if (by === page + "-checkpoint" && checkpoint === prompt.checkpoint) return [none, none, none];
                // What stands in the box, not what Dash was last told: Ctrl+Enter can come before it hears of the typing.
                const box = document.getElementById(id);
                const chosen = by === page + "-example" ? example : (box ? box.value : text) || "";
                const most = Number(document.querySelector("[data-max-characters]").dataset.maxCharacters);
                // Too long to send: the server is told the length and answers with the limit.
                const next = chosen.length > most
                    ? { checkpoint: checkpoint, text: "", length: chosen.length }
                    : { checkpoint: checkpoint, text: chosen };
                return [next, by === page + "-example" ? chosen : none, by === page + "-example" ? null : none];
            },
            // For scripts of pages with a strip of tokens: the arrow keys move the focus along it.
            moveChip: function (event, chip) {
                const chips = chip.parentElement.children;
                const here = Number(chip.dataset.position);
                const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: chips.length - 1 }[event.key];
                if (to === undefined || !chips[to]) return;
                event.preventDefault();
                chip.tabIndex = -1;
                chips[to].tabIndex = 0;
                chips[to].focus();
            },
            save_png: (clicks, id, title) => { if (clicks) savePlot("png", id, title); },
            save_svg: (clicks, id, title) => { if (clicks) savePlot("svg", id, title); },
            saveImage: (clicks, source) => { if (clicks && source) download(source, "aotlens-all-heads.png"); },
        },
    });
})();
