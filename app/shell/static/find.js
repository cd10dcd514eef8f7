// Find: heads by what they do, pages, panels, checkpoints (app/shell/find.py). `/`, Ctrl K or the button opens it.
(function () {
    "use strict";
    const MOST = 30;
    let dialog, box, list, entries;

    function build() {
        // Escape empties a search box first, and this one has only to close.
        const search = { type: "text", role: "searchbox", ariaLabel: "Find heads, pages, panels and checkpoints" };
        box = aotlens.element("input", { ...search, placeholder: "induction, a page, a panel, a checkpoint" });
        list = aotlens.element("div", { className: "find-list", role: "status" });
        dialog = aotlens.element("dialog", { className: "find" }, box, list);
        document.body.append(dialog);
        box.addEventListener("input", show);
        dialog.addEventListener("keydown", move);
        dialog.addEventListener("click", ({ target }) => {
            if (target === dialog || target.closest("a")) dialog.close();
        });
    }

    function wordsOf(text) {
        return text.toLowerCase().split(/\s+/).filter(Boolean);
    }

    function show() {
        if (!entries) return;
        const words = wordsOf(box.value);
        // A head's number is a word of its own: 1.3 is not in 11.3. What has the words in its name, and heads of the checkpoint
        // that is open, come first.
        const has = (text, word) => (/^\d+\.\d+$/.test(word) ? text.split(/[\s:]+/).includes(word) : text.includes(word));
        const checkpointOf = (href) => new URLSearchParams(href.split("?")[1]).get("checkpoint"), here = checkpointOf(aotlens.address.along("/heads"));
        const rank = ({ name, note, href }) => {
            if (!words.every((word) => has(`${name} ${note}`.toLowerCase(), word))) return 0;
            const named = words.every((word) => has(name.toLowerCase(), word));
            return 1 + 2 * named + (here !== null && checkpointOf(href) === here);
        };
        const ranked = entries.map((entry) => [rank(entry), entry]).filter(([place]) => place);
        const fitting = ranked.sort(([a], [b]) => b - a).map(([, entry]) => entry);
        list.replaceChildren(...fitting.slice(0, MOST).map(entryLink));
        if (fitting.length > MOST) list.append(remark(`and ${fitting.length - MOST} more: add a word.`));
        if (!fitting.length) list.append(remark(`Nothing has all of these words. Pages, panels, checkpoints and heads are found here, heads by what they do: ${labels()}.`));
    }

    function labels() {
        const names = entries.filter(({ name }) => name.includes(": ")).map(({ name }) => name.split(": ")[0]);
        return [...new Set(names)].sort().join(", ") || "no checkpoint here has a stored atlas";
    }

    function entryLink({ name, note, href }) {
        const link = aotlens.element("a", { href: aotlens.address.along(href) }, name, aotlens.element("small", {}, note));
        link.dataset.inApp = "";
        return link;
    }

    const remark = (text) => aotlens.element("p", { className: "find-none" }, text);

    // Arrow keys walk through the list, Enter in the box takes its first entry.
    function move(event) {
        const links = [...list.querySelectorAll("a")], here = links.indexOf(document.activeElement);
        if (event.key === "Enter" && here < 0) {
            event.preventDefault();
            if (links[0]) links[0].click();
        }
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        (links[here + step] || box).focus();
    }

    async function open() {
        if (!dialog) build();
        if (dialog.open) return;
        dialog.showModal();
        box.focus();
        if (!entries) {
            list.replaceChildren(remark("Reading the list…"));
            try {
                const answer = await aotlens.during(fetch("/find.json"));
                if (!answer.ok) throw new Error(answer.status);
                entries = await answer.json();
            } catch (error) {
                list.replaceChildren(remark("The server does not answer. Close this and try again."));
                return;
            }
        }
        show();
    }

    document.addEventListener("keydown", function (event) {
        const typing = aotlens.closest(event.target, "input, textarea, select, [contenteditable]");
        const slash = event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
        const command = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
        if (!slash && !command) return;
        event.preventDefault();
        open();
    });

    document.addEventListener("click", ({ target }) => {
        if (aotlens.closest(target, ".find-open")) open();
    });
})();
