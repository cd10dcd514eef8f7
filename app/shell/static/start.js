// Starts Dash. Its scripts wait in a template (app/shell/app.py): at an address whose page draws a first picture by itself
// (`Page.first`), until that is drawn or has taken too long.
(function () {
    "use strict";
    const PATIENCE = 2000; // milliseconds
    const waiting = [...document.querySelector("template.dash").content.children];

    function start() {
        const scripts = waiting.map(function ({ attributes, textContent }) {
            const script = Object.assign(document.createElement("script"), { textContent, async: false });
            for (const { name, value } of attributes) script.setAttribute(name, value);
            return script;
        });
        // The last one is Dash's own line, which runs as soon as it is there.
        const renderer = scripts.pop();
        scripts.at(-1).addEventListener("load", () => document.body.append(renderer));
        document.body.append(...scripts);
    }

    const box = document.querySelector(".first");
    const late = new Promise((done) => setTimeout(done, PATIENCE));
    if (box) Promise.race([aotlens.first(box), late]).then(start, start);
    else start();
})();
