// The Skip-trigrams page between two questions to the server: collect the controls, pick rows, hand them to the grid.
(function () {
    "use strict";
    const whole = (value, first) => Number.isInteger(value) ? value : first;
    const OF_TEXT = ["verdict", "kind", "corpus", "tokens", "own", "after", "pasted"];

    // What the rows are of, without the text that they are checked against and what is searched for among them.
    function tableOf(asked) {
        const rest = Object.entries(asked).filter(([name]) => !OF_TEXT.includes(name));
        const tokens = ["source", "destination", "out"];
        return JSON.stringify(rest.filter(([name]) => asked.within === "all" || !tokens.includes(name)));
    }

    let listed = {}; // the first rows, and what was asked for them
    let shown = null; // the rank of the row that is explained

    aotlens.page("trigrams", {
        // The row that is explained and the groups that are listed are those of other rows once the rows are others.
        collect: function ({ before, head, distance, delta, k, least, tokens, verdict, kind, ...rest }) {
            const texts = ["source", "destination", "out", "after", "pasted"];
            const asked = {
                ...rest, head: head ?? null,
                ...Object.fromEntries(texts.map((name) => [name, rest[name] || ""])),
                distance: distance === "fixed" ? Math.max(whole(delta, 1), 1) : distance === "mean" ? "mean" : null,
                k: Math.min(Math.max(whole(k, 500), 1), 5000), least: Math.max(whole(least, 0), 0),
                tokens: Number(tokens), verdict: verdict || null, kind: kind || null,
            };
            if (JSON.stringify(asked) === JSON.stringify(before ?? null)) return {};
            return before && tableOf(before) !== tableOf(asked) ? { asked, row: null, opened: [] } : { asked };
        },

        // Which rows the grid shall ask for: the first of them are here; further ones it asks the server for.
        list: function ({ first, opened, asked }) {
            if (listed.first !== first) listed = { first, asked };
            const context = first && { asked: listed.asked, opened };
            aotlens.listRows("trigrams-rows-table", first && first.whole, context, first);
        },

        pick: function ({ selected }) {
            const row = selected && selected[0];
            if (!row || !row.rank || row.rank === shown) return {};
            aotlens.openTab("trigrams-besides", "one");
            return { row: row.rank };
        },

        // The row that is explained is the selected one, also where nobody has picked it.
        mark: function ({ title }) {
            shown = Number(title.replace(/\D/g, "")) || null; // "Row 1,234"; "One row" where there is none
            if (shown) aotlens.markRow("trigrams-rows-table", String(shown));
        },

        unfold: function ({ click, opened }) {
            if (!click || click.colId !== "grouped" || !click.value) return {};
            const rank = Number(click.rowId);
            return { opened: opened.includes(rank) ? opened.filter((other) => other !== rank) : [...opened, rank] };
        },

        walk: function ({ click }) {
            const head = click && click.colId === "head" && String(click.value).split(".").map(Number);
            if (head) aotlens.pickHead("trigrams-heads", ...head);
        },
    });
})();
