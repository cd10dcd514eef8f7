// The In-context regression page: the widget (aotlens/widget) draws the maps of all heads on a prompt, and one of them; here
// its choices go to Dash's stores, and theirs to it.
(function () {
    "use strict";
    const { setProps } = aotlens;
    const byId = (id) => document.getElementById(`regression-${id}`);
    const maps = aotlens.headsOf({
        route: "/regression/maps", page: "regression", panels: ["regression-grid", "regression-map"],
        parts: [["regression-cells", "Grid", { switches: false }], ["regression-canvas", "LargeMap"]],
    });

    maps.then(function (heads) {
        heads.addEventListener("choose", () => aotlens.afterFrame(() => setProps("regression-head", { data: heads.head })));
        heads.addEventListener("lock", () => aotlens.afterFrame(() => setProps("regression-query", { value: heads.position === null ? null : String(heads.position) })));
        heads.addEventListener("drawn", function () {
            const title = byId("map-title");
            if (title) title.textContent = heads.maps ? `Head ${heads.head.join(".")}` : "One head";
        });
    });

    document.addEventListener("keydown", function (event) {
        const inside = event.target instanceof Element && event.target.closest("#regression-cells");
        if (event.key === "Escape" && inside) maps.then((heads) => heads.release());
    });

    // The queries of the prompt, of which one can be locked; of a page that is opened again, the choice is new.
    let offered = {};
    function offer({ n, tokens }, query) {
        const props = {}, box = byId("query"), listed = String(tokens);
        if (offered.box !== box || offered.listed !== listed) props.data = tokens.map((label, position) => ({ label, value: String(position) }));
        if (query >= n) props.value = null;
        if (Object.keys(props).length) setProps("regression-query", props);
        offered = { box, listed };
    }

    aotlens.page("regression", {
        show: async function ({ shown, grid, map, head, query, prompt, view }) {
            byId("page")?.toggleAttribute("data-empty", !shown);
            const isSeen = [grid, map].some((each) => JSON.stringify(each) === JSON.stringify(shown));
            if (!isSeen) return;
            const position = query === null ? null : Number(query), asked = shown && { ...shown, models: shown.named, prompt, view };
            const lock = offered.box === byId("query") ? {} : { cell: null }; // what was locked on a page that was left
            const heads = await maps.show(asked, { head, position, ...lock });
            if (heads?.maps) offer(heads.maps, position);
        },
    });
})();
