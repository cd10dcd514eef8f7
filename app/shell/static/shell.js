// What every page has: theme, navigation, explanations, maximising a panel, saving pictures; and what several have: tabs, a
// text to run, tokens.
(function () {
    "use strict";
    const media = matchMedia("(prefers-color-scheme: dark)");
    let choice = "system";

    function applyTheme() {
        const theme = choice !== "system" ? choice : media.matches ? "dark" : "light";
        document.documentElement.style.colorScheme = theme;
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
        aotlens.afterFrame(() => window.dispatchEvent(new Event("resize")));
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

    // The menu of a group of pages is open while something in it has the focus.
    function shutMenu() {
        if (document.activeElement?.closest(".nav-group")) document.activeElement.blur();
    }

    // A link of the menu takes the checkpoint, the text and the head along; its address is known before it is followed.
    for (const kind of ["pointerover", "pointerdown", "focusin"]) {
        document.addEventListener(kind, function ({ target }) {
            const link = aotlens.closest(target, ".nav-link");
            if (link) link.setAttribute("href", aotlens.address.along(new URL(link.href).pathname));
        }, true);
    }

    // A link that is drawn, and no component, leads to another page as Dash's own links do. At the window, after pages'
    // scripts, which may take it themselves.
    window.addEventListener("click", function (event) {
        const link = aotlens.closest(event.target, "a[data-in-app]");
        if (!link || event.defaultPrevented || event.metaKey || event.shiftKey || event.altKey || event.ctrlKey) return;
        event.preventDefault();
        history.pushState({}, "", link.getAttribute("href"));
        window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
        scrollTo(0, 0);
    });

    // The start page's link to the view that was open last.
    function showLast() {
        const link = document.querySelector(".start-last"), last = link && aotlens.address.last();
        if (!last) return;
        link.textContent = last.title.replace(" · aotlens", ""); // as it was stored once
        link.href = last.href;
        link.classList.remove("hidden");
        document.querySelector(".start-none").classList.add("hidden");
    }

    // Ctrl+Enter in a page's text runs it.
    document.addEventListener("keydown", function (event) {
        const asked = event.key === "Enter" && (event.ctrlKey || event.metaKey);
        if (!asked || !event.target.matches("[data-max-characters] textarea")) return;
        event.preventDefault();
        document.getElementById(event.target.id.replace(/-text$/, "-run")).click();
    });

    function numberIn(text, { min, max }) {
        const number = text.trim() === "" ? NaN : Number(text);
        return Number.isNaN(number) ? undefined : Math.min(Math.max(number, min ?? -Infinity), max ?? Infinity);
    }

    // A field that waits for more typing (`debounce`) tells what it holds as soon as it is left: a button that is pressed
    // at once acts on what its reader sees, not on what was there before.
    document.addEventListener("focusout", function ({ target }) {
        if (!(target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement) || !target.id) return;
        const component = aotlens.component(target.id);
        if (!component?.props?.debounce) return;
        const value = component.type === "NumberInput" ? numberIn(target.value, component.props) : target.value;
        if (value !== undefined && value !== component.props.value) aotlens.setProps(target.id, { value: value });
    });

    // Explanations (app/shell/panel.py, `about`) and popovers: one at a time, until the next click elsewhere.
    const OPENED = "details:is(.about, .popover)[open]";

    document.addEventListener("click", function ({ target }) {
        for (const other of document.querySelectorAll(OPENED)) {
            if (!(target instanceof Node) || !other.contains(target)) other.open = false;
        }
    });

    document.addEventListener("keydown", function (event) {
        if (event.key !== "Escape") return;
        shutMenu();
        const about = document.querySelector(OPENED);
        if (about) {
            about.open = false;
            about.querySelector("summary").focus();
        } else if (document.querySelector("[data-maximised]")) maximise(null, false);
    });

    // Opens another of a group of tabs (app/shell/panel.py, `tabs`).
    aotlens.openTab = function (id, name) {
        aotlens.setProps(id, { value: name });
        remeasure();
    };

    // What was drawn in a closed tab measures itself anew when it is there: figures, tables, boxes as high as their text.
    function remeasure() {
        aotlens.later(() => window.dispatchEvent(new Event("resize")), 50);
    }

    document.addEventListener("click", ({ target }) => aotlens.closest(target, "[role=tab]") && remeasure());

    const download = (href, name) => aotlens.element("a", { href, download: name }).click();

    aotlens.saveBlob = function (content, name) {
        const address = URL.createObjectURL(content);
        download(address, name);
        setTimeout(() => URL.revokeObjectURL(address), 10_000);
    };

    // plotly, which a page without figures of its own has not loaded.
    function plotly() {
        return window.Plotly ? Promise.resolve() : new Promise(function (done, failed) {
            const { plotly: src } = document.querySelector("[data-plotly]").dataset;
            document.head.append(aotlens.element("script", { src, onload: done, onerror: failed }));
        });
    }

    function safeName(text) {
        return "aotlens-" + text.toLowerCase().replace(/[^a-z0-9.]+/g, "-");
    }

    // The entries PNG and SVG of a panel's export menu: its figure, or its picture.
    function savePicture(panel, format) {
        if (panel.querySelector(".paper-figure")) return; // made by the server (`sharing.save_pictures`)
        const plot = panel.querySelector(".js-plotly-plot"), image = panel.querySelector("img[src]"), box = panel.querySelector(".large, .patch-maps");
        const title = panel.querySelector(".panel-title").textContent;
        if (box && box.map) box.map.file(format).then(({ name, content }) => aotlens.saveBlob(content, `${safeName(name)}.${format}`));
        else if (plot && plot.data.length) savePlot(plot, format, title);
        else if (image && image.src) download(image.src, safeName(title) + ".png");
    }

    document.addEventListener("click", function (event) {
        const entry = event.target instanceof Element && event.target.closest('[id$="-export-png"], [id$="-export-svg"]');
        const [, panel, format] = (entry && /^(.*)-export-(png|svg)$/.exec(entry.id)) || [];
        if (panel) savePicture(document.getElementById(panel), format);
    });

    function savePlot(plot, format, title) {
        const style = getComputedStyle(plot.closest(".panel"));
        const name = (plot.layout.meta && plot.layout.meta.name) || title;
        const layout = Object.assign({}, plot.layout, {
            paper_bgcolor: style.backgroundColor, autosize: false, shapes: plot.layout.shapes,
            title: { text: name, font: { size: 14 } }, margin: { l: 20, r: 20, t: 44, b: 20 },
        });
        window.Plotly.downloadImage({ data: plot.data, layout: layout },
            { format: format, width: 900, height: 820, scale: 2, filename: safeName(name) });
    }

    // What a server found is all shown: it has searched by rules of its own (aotlens' `Labels.search`).
    window.dashMantineFunctions = Object.assign({}, window.dashMantineFunctions, {
        keepAll: ({ options }) => options,
        plainNumber: (value) => plainNumber(value),
        tenToThe: (value) => Number((10 ** value).toPrecision(3)).toString(),
    });

    function plainNumber(value) {
        return Number(Number(value).toPrecision(6)).toString().replace("-", "−");
    }

    aotlens.page("shell", {
        chooseTheme: function ({ chosen }) {
            choice = chosen || "system";
            try {
                localStorage.setItem("mantine-color-scheme-value", choice === "system" ? "auto" : choice);
            } catch (error) {
                // Storage is forbidden: the choice lasts as long as the page.
            }
            const theme = applyTheme();
            return { theme: theme, scheme: theme };
        },

        markPage: function ({ pathname }) {
            aotlens.listen();
            const links = [...document.querySelectorAll(".nav-link")];
            const path = (pathname || "/").replace(/\/+$/, "") || (location.search && new URL(links[0].href).pathname);
            maximise(null, false);
            showLast();
            document.title = "aotlens";
            for (const link of links) {
                if (new URL(link.href).pathname === path) {
                    link.setAttribute("aria-current", "page");
                    document.title = link.textContent + " · aotlens";
                } else {
                    link.removeAttribute("aria-current");
                }
            }
            const navigation = document.querySelector(".navigation");
            delete navigation.dataset.page;
            for (const name of document.querySelectorAll(".nav-name")) {
                const group = name.parentElement, link = group.querySelector("[aria-current='page']");
                name.toggleAttribute("data-page", Boolean(link));
                if (link && link.textContent !== name.textContent) {
                    navigation.dataset.page = link.textContent;
                }
                if (!group.matches(":hover")) continue;
                group.dataset.shut = "";
                group.addEventListener("pointerleave", () => delete group.dataset.shut, { once: true });
            }
            shutMenu();
        },

        // A page's text, its checkpoint or an example -> what is asked, the text, the example (app/shell/sharing.py).
        submit: function ({ checkpoint, example, text, prompt, id }) {
            const page = id.replace(/-text$/, "");
            const by = aotlens.triggered();
            const byExample = by === page + "-example";
            if (byExample && !example) return {};
            if (by === page + "-checkpoint" && checkpoint === prompt.checkpoint) return {};
            // What stands in the box, not what Dash was last told: Ctrl+Enter can come before it hears of the typing.
            const box = document.getElementById(id), pressed = document.getElementById(page + "-run")?.dataset;
            const chosen = byExample ? example : pressed?.text ?? (box ? box.value : text) ?? "";
            delete pressed?.text;
            const most = Number(document.querySelector("[data-max-characters]").dataset.maxCharacters);
            // Too long to send: the server is told the length and answers with the limit; the address stays as it is.
            const next = chosen.length > most
                ? { checkpoint: checkpoint, length: chosen.length }
                : { checkpoint: checkpoint, text: chosen };
            return byExample ? { prompt: next, text: chosen, example: null } : { prompt: next };
        },

        // Texts of one's own (app/shell/own_texts.py). Of a file that is too large to send, the server is told the size.
        sendText: function ({ contents, file: name }) {
            if (!contents) return {};
            const bytes = Math.floor(0.75 * (contents.length - contents.indexOf(",") - 1));
            const most = Number(document.querySelector("[data-max-bytes]").dataset.maxBytes);
            return { sent: bytes > most + 2 ? { name, bytes } : { name, contents } };
        },
        chooseText: ({ text }) => ({
            box: text === "pasted text" ? "own-pasted" : "own-pasted hidden",
            remove: /^text-[0-9a-f]{16}$/.test(text) ? "" : "hidden",
        }),

        offerRemoval: ({ own }) => ({ remove: own?.length ? "" : "hidden" }),

        // A figure that is made for a file, in its own size.
        saveFigure: function ({ picture }) {
            if (!picture) return;
            const { figure, format } = picture, { width, height, title } = figure.layout;
            plotly().then(() => window.Plotly.downloadImage(figure, { format, width, height, scale: 3, filename: safeName(title.text) }));
        },

        showPython: ({ code }) => aotlens.showPython(code),

        // Panels that are asked for when they are seen (static/waiting.js).
        passOn: ({ shown, id }) => aotlens.passOn(id, shown),
    });
})();
