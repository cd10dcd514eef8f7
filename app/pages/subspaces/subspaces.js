// The Subspace denoising page between two questions to the server: it moves through the layers, which each figure has as
// plotly's frames.
(function () {
    "use strict";
    const PANELS = ["subspaces-cloud", "subspaces-snr", "subspaces-membership"];
    const wanted = { layer: 0 };

    // A figure's layer: the one that it came with, until it has been moved.
    const moved = new WeakMap(); // by the plot's layout: the layer that it shows

    function plotOf(panel) {
        return document.querySelector(`#${panel}-graph .js-plotly-plot`);
    }

    // dcc.Graph hands its figure to plotly when it gets to it: until then the plot is the one before.
    function whenDrawn(panel, figure, then, tries) {
        const plot = plotOf(panel);
        const drawn = plot && plot.layout && plot.layout.meta && plot.layout.meta.key === figure.layout.meta.key;
        if (drawn && plot._transitionData && plot._transitionData._frames.length) then(plot);
        else if (tries) aotlens.afterFrame(() => whenDrawn(panel, figure, then, tries - 1));
    }

    function moveTo(panel, plot) {
        const { meta } = plot.layout, layer = wanted.layer;
        const here = moved.has(meta) ? moved.get(meta) : meta.layer;
        const mark = function () {
            document.getElementById(panel).dataset.layer = String(layer);
            say();
        };
        if (here === layer || layer >= plot._transitionData._frames.length) return mark();
        moved.set(meta, layer);
        const at_once = { mode: "immediate", frame: { duration: 0, redraw: true }, transition: { duration: 0 } };
        aotlens.during(window.Plotly.animate(plot, [String(layer)], at_once)).then(mark, () => undefined); // another layer came first
    }

    // The layer's sentence, once every figure in sight shows that layer.
    function say() {
        const isLate = (panel) => plotOf(panel)?.checkVisibility() && document.getElementById(panel).dataset.layer !== String(wanted.layer);
        const said = document.getElementById("subspaces-captions");
        if (said && !PANELS.some(isLate)) [...said.children].forEach((each, index) => { each.hidden = index !== wanted.layer; });
    }

    aotlens.page("subspaces", {
        move: function ({ layer, captions, ...figures }) {
            wanted.layer = Number(layer);
            for (const panel of PANELS) {
                const figure = figures[panel.replace("subspaces-", "")];
                if (figure && figure.layout && figure.layout.meta) whenDrawn(panel, figure, (plot) => moveTo(panel, plot), 600);
            }
            say();
        },

        show: function ({ shown }) {
            const page = document.getElementById("subspaces-page");
            if (page) page.toggleAttribute("data-empty", !shown);
        },
    });
})();
