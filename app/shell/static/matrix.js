// Blocks of a matrix (app/shell/graph.py, `matrix`), which the widget draws from what a store holds.
(function () {
    "use strict";
    const ready = customElements.whenDefined("aotlens-heads").then(({ parts }) => parts.MatrixMap);

    async function mapOf(panel) {
        const MatrixMap = await ready, box = document.getElementById(`${panel}-matrix`);
        if (box && !box.map) new MatrixMap(box);
        return box?.map;
    }

    function decoded({ values, stops, ...matrix }) {
        const bytes = Uint8Array.from(atob(values), (character) => character.charCodeAt(0));
        const colours = stops.map((stop) => [1, 3, 5].map((place) => parseInt(stop.slice(place, place + 2), 16)));
        return { ...matrix, values: new Float32Array(bytes.buffer), stops: colours };
    }

    // `picked` gets the row and the column of an entry that is clicked, and the matrix.
    aotlens.drawMatrix = async function (panel, matrix, picked) {
        const map = await mapOf(panel);
        if (!map || map.of === matrix) return;
        if (!("of" in map)) map.addEventListener("pick", ({ detail }) => picked(detail, map.of));
        map.of = matrix;
        document.getElementById(`${panel}-matrix`).parentElement.classList.toggle("hidden", !matrix); // nothing to show
        map.show(matrix && decoded(matrix));
    };

    aotlens.markEntry = (panel, entry) => mapOf(panel).then((map) => map?.mark(entry));
})();
