// The large map of a head (app/shell/head_map.py). Its picture is in steps of a colour scale, good for shading, not for
// reading: numbers come exact, for a token at a time, its row and its column, when it is pointed at or wanted otherwise.
(function () {
    "use strict";
    const PATIENCE = 1200; // frames
    const WHOSE = ["key", "layer", "head", "view", "hide_first"]; // what tells one map from another

    const bytesOf = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    const floatsOf = (text) => new Float32Array(bytesOf(text).buffer);
    const nameOf = (told) => WHOSE.map((part) => told[part]).join();

    // What the steps of the picture stand for (aotlens.plots.attention, `to_levels`), and whose they are.
    function decode(figure) {
        const trace = figure && figure.data && figure.data[0];
        const meta = figure && figure.layout && figure.layout.meta;
        if (!trace || !trace.z || !trace.z.bdata || !meta) return null;
        const [zero, steps] = meta.signed ? [128, 127] : [0, 255];
        return {
            ...meta, size: Number(String(trace.z.shape).split(",")[0]),
            values: Float32Array.from(bytesOf(trace.z.bdata), (level) => (level - zero) / steps * meta.top),
        };
    }

    class HeadMap {
        constructor(panel) {
            Object.assign(this, {
                panel, shown: null, lines: new Map(), asking: false, wanted: null, at: null, heard: null,
                drawn: () => undefined, // what a page does with a picture
            });
        }

        plot() { return document.querySelector(`#${this.panel}-graph .js-plotly-plot`); }

        now() { return this.shown; }

        line(position) { return this.lines.get(position); }

        // One question at a time: of all tokens that a pointer passes meanwhile, the last is asked for next.
        want(position) {
            const map = this.now();
            this.wanted = position;
            if (!map || this.asking || position === null || position >= map.size || this.line(position)) return;
            this.asking = true;
            const whose = Object.fromEntries(WHOSE.map((part) => [part, map[part]]));
            aotlens.setProps(`${this.panel}-wanted`, { data: { ...whose, position: position } });
        }

        // Another map is shown; a locked token's line has come with it.
        show(figure) {
            this.shown = decode(figure);
            this.lines.clear();
            this.receive(this.shown && this.shown.line);
            this.leave();
            this.await(this.shown, PATIENCE);
        }

        // Until plotly is there, which a page's first figure waits for, and has drawn.
        await(shown, patience) {
            requestAnimationFrame(() => {
                if (shown !== this.shown) return; // another map by now
                const plot = this.plot();
                if (shown && patience && !(plot && plot.on && plot.data && plot.data.length)) {
                    this.await(shown, patience - 1);
                    return;
                }
                this.listen();
                this.drawn();
            });
        }

        take(line) {
            this.receive(line);
            requestAnimationFrame(() => this.tell());
        }

        receive(line) {
            this.asking = false;
            if (line && this.shown && nameOf(line) === nameOf(this.shown)) {
                this.lines.set(line.position, { row: floatsOf(line.row), column: floatsOf(line.column) });
            }
            this.want(this.wanted);
        }

        // What the map holds where the pointer is.
        tell() {
            const map = this.now(), line = this.at && this.line(this.at.row);
            const value = line ? line.row[this.at.column] : NaN;
            const box = document.getElementById(`${this.panel}-tip`);
            if (!box) return;
            box.hidden = !map || !Number.isFinite(value);
            if (box.hidden) return;
            const number = document.createElement("b");
            number.textContent = `${map.quantity} ${value.toFixed(4)}`;
            box.replaceChildren(`query  ${this.at.query}`, document.createElement("br"), `key  ${this.at.key}`,
                document.createElement("br"), number);
            const left = this.at.x + 14 + box.offsetWidth > innerWidth ? this.at.x - 14 - box.offsetWidth : this.at.x + 14;
            box.style.left = left + "px";
            box.style.top = this.at.y + 14 + "px";
        }

        point({ points: [point], event }) {
            const [row, column] = point.pointNumber;
            this.at = { row, column, query: point.y, key: point.x, x: event.clientX, y: event.clientY };
            this.want(row);
            this.tell();
        }

        leave() {
            this.at = null;
            this.tell();
        }

        // A frame around the row of a token, or its column; null: none. It is part of the picture that is saved.
        frame(position, isRow) {
            const plot = this.plot();
            if (!plot || !plot.data || !plot.data.length || !window.Plotly) return;
            const wanted = position === null || !this.now() || position >= this.shown.size ? [] : [{
                type: "rect", line: { width: 1.5, color: getComputedStyle(plot).getPropertyValue("--lock") },
                xref: isRow ? "paper" : "x", yref: isRow ? "y" : "paper",
                x0: isRow ? 0 : position - 0.5, x1: isRow ? 1 : position + 0.5,
                y0: isRow ? position - 0.5 : 0, y1: isRow ? position + 0.5 : 1,
            }];
            const text = JSON.stringify(wanted);
            if (text === plot.dataset.frame && (plot.layout.shapes || []).length === wanted.length) return;
            plot.dataset.frame = text;
            window.Plotly.relayout(plot, { shapes: wanted });
        }

        // plotly forgets who listens, and gets another `on`, when Dash draws the first figure over an empty one.
        listen() {
            const plot = this.plot();
            if (!plot || !plot.on || plot.on === this.heard) return;
            this.heard = plot.on;
            plot.on("plotly_hover", (event) => this.point(event));
            plot.on("plotly_unhover", () => this.leave());
            plot.on("plotly_afterplot", () => this.drawn());
        }
    }

    const maps = new Map(); // by their panels' ids

    aotlens.headMap = function (panel) {
        if (!maps.has(panel)) maps.set(panel, new HeadMap(panel));
        return maps.get(panel);
    };

    document.addEventListener("mouseover", function ({ target }) {
        const panel = target instanceof Element && target.closest(".panel");
        if (panel && maps.has(panel.id)) maps.get(panel.id).listen();
    });
})();
