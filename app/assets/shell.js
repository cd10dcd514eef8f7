// What every page has: theme, navigation, maximising a panel, saving pictures.
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
            save_png: (clicks, id, title) => { if (clicks) savePlot("png", id, title); },
            save_svg: (clicks, id, title) => { if (clicks) savePlot("svg", id, title); },
            saveImage: (clicks, source) => { if (clicks && source) download(source, "aotlens-all-heads.png"); },
        },
    });
})();
