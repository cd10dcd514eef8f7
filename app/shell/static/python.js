// What is taken away from a view: its link (app/shell/frame.py), and the lines of Python that give its numbers
// (app/shell/python.py).
(function () {
    "use strict";
    // Over plain HTTP, browsers keep the clipboard from scripts: then by way of a box that nobody sees.
    async function copy(text) {
        try {
            await navigator.clipboard.writeText(text);
        } catch (error) {
            const box = aotlens.element("textarea", { value: text });
            (document.querySelector("dialog[open]") || document.body).append(box);
            box.select();
            document.execCommand("copy");
            box.remove();
        }
    }

    // The button says so for a moment.
    async function copied(button, text) {
        await copy(text);
        const name = button.dataset.name || button.textContent;
        button.dataset.name = name;
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = name; }, 1500);
    }

    const lines = () => document.getElementById("python-code").textContent;

    const actions = {
        ".copy-link": (button) => copied(button, location.href),
        ".python-copy": (button) => copied(button, lines()),
        ".python-save": () => aotlens.saveBlob(new Blob([lines()], { type: "text/x-python" }), "aotlens-view.py"),
        ".python-close": () => document.getElementById("python").close(),
        '[id$="-export-python"]': (entry) => aotlens.setProps("python-asked", {
            data: { panel: entry.id.replace(/-export-python$/, ""), search: location.search, at: Date.now() },
        }),
    };

    document.addEventListener("click", function ({ target }) {
        if (!(target instanceof Element)) return;
        for (const [selector, act] of Object.entries(actions)) {
            const found = target.closest(selector);
            if (found) act(found);
        }
    });

    aotlens.showPython = function (code) {
        const dialog = document.getElementById("python");
        if (code && !dialog.open) dialog.showModal();
    };
})();
