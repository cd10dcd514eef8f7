// The Training page's player: the maps of all heads at a step of a run, by the route of Heads, under the name NAME@STEP. The
// slider draws at once; Dash, which writes the address, hears of the step when it rests.
(function () {
    "use strict";
    const KEPT = 120; // maps of steps
    const AHEAD = 3; // steps that are fetched before they are asked for
    const FRAME = 120; // milliseconds of a step, when all are played
    const RESTS = 250, PANEL = "training-film-panel";
    let shown = null, steps = [], number = 0, timer = 0, rests = 0, parts = null, drawn = "", told = null, toldHead = null;

    const fetchMaps = aotlens.maps("/maps", (bytes) => Object.assign(customElements.get("aotlens-heads").parts.Maps.of(bytes), { most: 1 }), KEPT);
    const question = (step) => aotlens.address.format("heads", { checkpoint: `${shown.checkpoint}@${step}`, text: shown.text }).split("?")[1];
    const place = () => Number(parts.slider.value);

    function build(box) {
        const { element } = aotlens;
        const button = (text, ariaLabel, onclick) => element("button", { type: "button", className: "plain-button", textContent: text, ariaLabel, onclick });
        const slider = element("input", { type: "range", min: 0, step: 1, ariaLabel: "Step of training", oninput: () => { pause(); show(); } });
        const step = element("output", { className: "training-step" }), says = element("p", { className: "caption", role: "status" });
        const links = element("span", { className: "training-links" });
        const play = button("Play", "Play all steps", () => (timer ? pause() : start()));
        const row = element("div", { className: "view-start" }, play, button("‹", "Previous step", () => move(-1)), slider, button("›", "Next step", () => move(1)), step, links);
        const heads = element("aotlens-heads", {});
        heads.addEventListener("heads", function ({ detail }) {
            toldHead = detail.head.join(".");
            aotlens.setProps("training-field-head", { value: toldHead });
        });
        box.replaceChildren(row, says, heads);
        return { box, slider, step, says, links, play, heads };
    }

    function start() {
        if (place() >= steps.length - 1) parts.slider.value = 0;
        parts.play.textContent = "Pause";
        const next = async function () {
            await show();
            if (!timer) return;
            if (place() >= steps.length - 1 || !parts.box.isConnected) return pause();
            parts.slider.value = place() + 1;
            timer = setTimeout(next, FRAME);
        };
        timer = setTimeout(next, 0);
    }

    function pause() {
        clearTimeout(timer);
        timer = 0;
        parts.play.textContent = "Play";
    }

    function move(by) {
        pause();
        parts.slider.value = place() + by;
        show();
    }

    // The maps of the step that the slider stands at; those before stay until they are there.
    async function show() {
        const at = place(), step = steps[at], mine = ++number;
        parts.slider.setAttribute("aria-valuetext", `step ${step}`);
        clearTimeout(rests);
        rests = aotlens.later(() => tell(step), RESTS);
        if (!parts.box.dataset.step) aotlens.busy([PANEL], true);
        const maps = await fetchMaps(question(step));
        for (let ahead = 1; ahead <= AHEAD && at + ahead < steps.length; ahead++) fetchMaps(question(steps[at + ahead]), true);
        if (mine !== number) return;
        aotlens.busy([PANEL], false);
        const failed = "instead" in maps, there = parts.box.dataset.step;
        parts.says.textContent = !failed ? "" : there ? `${maps.instead ?? ""} The maps are still those of step ${there}.`.trim() : (maps.instead ?? "");
        if (failed) return;
        draw(maps);
        parts.step.textContent = `step ${step.toLocaleString("en")}`;
        parts.box.dataset.step = step;
    }

    function draw(maps) {
        const { heads } = parts, text = maps.tokens.join("");
        if (!heads.heads || drawn !== text) {
            heads.show(maps, maps.steps, maps.visible);
            choose();
        } else heads.heads.set({ maps });
        drawn = text;
    }

    // The head that was chosen, where the model has it.
    function choose() {
        const { heads } = parts.heads, head = shown.head.split(".").map(Number);
        if (shown.head && heads && head[0] < heads.maps.layers && head[1] < heads.maps.heads) heads.set({ head });
    }

    function tell(step) {
        if (!parts.box.isConnected) return; // the page was left meanwhile
        const last = told = step === steps.at(-1) ? "" : String(step);
        if (shown.step !== last) aotlens.setProps("training-field-step", { value: last });
        link(step);
    }

    function link(step) {
        const page = (name, label, fields) => aotlens.element("a", { className: "page-link", href: aotlens.address.format(name, fields), textContent: label });
        const checkpoint = `${shown.checkpoint}@${step}`;
        parts.links.replaceChildren(
            page("heads", "Heads", { checkpoint, text: shown.text, head: shown.head || undefined }), " ", page("circuits", "Circuits", { checkpoint }), " ",
            page("compare", "Next to its end", { left_model: checkpoint, right_model: shown.checkpoint, text: shown.text }),
        );
    }

    aotlens.page("training", {
        play: function (chosen) {
            const box = document.getElementById("training-film"), was = shown;
            shown = chosen.shown;
            if (!box || !shown) return {};
            if (!parts || parts.box !== box) parts = build(box);
            steps = JSON.parse(box.dataset.runs)[shown.checkpoint] ?? [];
            if (!steps.length) return {};
            parts.slider.max = steps.length - 1;
            const wanted = shown.step === "" ? steps.at(-1) : Number(shown.step);
            const nearest = steps.reduce((best, each, index) => (Math.abs(each - wanted) < Math.abs(steps[best] - wanted) ? index : best), 0);
            const same = was && was.checkpoint === shown.checkpoint && was.text === shown.text && box.dataset.step;
            if (same && shown.head !== toldHead) choose();
            if (same) link(steps[place()]);
            if (same && (timer || shown.step === was.step || shown.step === told)) return {}; // it is no news, or has come from here
            if (!same) { // until maps of this checkpoint and text are there
                delete box.dataset.step;
                parts.step.textContent = "";
            }
            parts.slider.value = nearest;
            customElements.whenDefined("aotlens-heads").then(show);
            return {};
        },
    });
})();
