// Maps over images (app/shell/patch_maps.py): the widget (aotlens/widget/patches.js) draws them into the elements with
// data-part; its choices go to the page's fields, and theirs to it. Maps are asked for when what they depend on changes, and
// for a query if there are too many of them for one answer.
(function () {
    "use strict";
    // Fields that maps of all heads do not depend on.
    const LOCAL = ["quantity", "order", "head", "image", "patch", "target", "tab"];
    const pages = {}; // by page: its heads
    const chosen = {}; // what is shown, also while maps are on their way
    let drawnIn = null, question = "", waits = 0; // the element of all heads, what its maps are of, and how many answers are due

    function headsOf(page, grid, one) {
        const heads = aotlens.headsOf({ route: `/${page}/maps`, page, panels: [grid, one], kinds: { Heads: "ImageHeads", Maps: "PatchMaps" } });
        const tell = (name, fields) => heads.then((all) => all.addEventListener(name, function () {
            const told = fields(all); // before the page says what was shown before
            aotlens.afterFrame(() => aotlens.choose(page, told));
        }));
        tell("choose", ({ head, image }) => ({ head, image }));
        tell("query", ({ query }) => ({ patch: query }));
        tell("off", ({ off }) => ({ ablated: off }));
        heads.then((all) => all.addEventListener("drawn", function () {
            const title = document.getElementById(`${one}-title`), text = all.maps ? `Image ${all.image + 1}, head ${all.head.join(".")}` : "One image";
            if (title && title.textContent !== text) title.textContent = text;
            document.querySelector(".patch-grid")?.style.setProperty("--images", all.maps?.images ?? 1);
            const { head, image, query } = all; // of a smaller model, others than chosen
            if (all.maps && !waits && String([head, image, query]) !== String([chosen.head, chosen.image, chosen.query])) aotlens.choose(page, { head, image, patch: query });
        }));
        return heads;
    }

    aotlens.page("patchMaps", {
        showPatches: async function ({ shown, patches, ranked }) {
            const view = document.querySelector(".view-page"), box = (part) => view?.querySelector(`[data-part="${part}"]`);
            if (!box("PatchGrid") || !shown) return;
            const page = aotlens.pageOf(), panel = (part) => box(part).closest(".panel").id;
            const heads = pages[page] ??= headsOf(page, panel("PatchGrid"), panel("ImageMaps"));
            const { quantity, order, head, image, patch, ablated } = shown;
            Object.assign(chosen, {
                head: head ?? [0, 0], image: image ?? 0, query: patch ?? null, weighted: quantity === "weighted", added: patches ?? null,
                ranking: order === "consistent" && ranked?.length ? ranked[0].rows.map(([{ pick }]) => pick.head) : null,
                off: ablated ?? [],
            });
            const asked = Object.fromEntries(Object.entries(shown).filter(([field]) => !LOCAL.includes(field)));
            const all = await heads, wanted = JSON.stringify(asked);
            if (drawnIn !== box("PatchGrid") || question !== wanted) {
                [drawnIn, question] = [box("PatchGrid"), wanted];
                waits++;
                await heads.show(asked, chosen, [...view.querySelectorAll("[data-part]")].map(({ id, dataset }) => [id, dataset.part]));
                waits--;
            } else all.set(chosen);
            if (patch && all.maps?.only && all.maps.at(patch) < 0) await heads.show({ ...asked, patch }, chosen, []);
        },
    });
})();
