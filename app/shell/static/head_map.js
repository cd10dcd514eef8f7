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
                // A page's own: whether what is shown is what it is about, still; what it does with numbers, with a
                // picture, with the entry {row, column} that is pointed at here (null: none).
                fits: () => true, changed: () => undefined, drawn: () => undefined, pointed: () => undefined,
            });
        }

        plot() { return document.querySelector(`#${this.panel}-graph .js-plotly-plot`); }

        now() { return this.shown && this.fits(this.shown) ? this.shown : null; }

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
                this.changed();
                this.drawn();
            });
        }

        take(line) {
            this.receive(line);
            requestAnimationFrame(() => {
                this.tell();
                this.changed();
            });
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
            this.pointed({ row, column });
        }

        leave() {
            this.at = null;
            this.tell();
            this.pointed(null);
        }

        // Where entries are in the window: of a row, from the first key to the last; null before plotly has drawn.
        place(row, column) {
            const plot = this.plot(), layout = plot && plot._fullLayout, trace = plot && plot.data && plot.data[0];
            if (!layout || !layout.xaxis || !trace || !trace.y) return null;
            const { left, top } = plot.getBoundingClientRect(), { xaxis, yaxis } = layout;
            const [width, height] = [xaxis, yaxis].map((axis) => Math.abs(axis.c2p(1) - axis.c2p(0)));
            const x = column === undefined ? 0 : xaxis.c2p(column) - width / 2;
            return {
                left: left + xaxis._offset + x, top: top + yaxis._offset + yaxis.c2p(row) - height / 2, height,
                width: column === undefined ? xaxis._length : width, query: trace.y[row], key: trace.x[column],
            };
        }

        // Marks an entry, or a row, that is pointed at elsewhere, and says an entry's number; null: nothing.
        mark(at) {
            const place = at && this.now() && at.row < this.shown.size ? this.place(at.row, at.column) : null;
            this.box ??= Object.assign(document.createElement("div"), { className: "map-mark" });
            if (place) document.body.append(this.box);
            else this.box.remove();
            const entry = place && at.column !== undefined;
            this.at = entry
                ? { row: at.row, column: at.column, query: place.query, key: place.key, x: place.left, y: place.top }
                : null;
            if (place) for (const side of ["left", "top", "width", "height"]) this.box.style[side] = place[side] + "px";
            if (entry) this.want(at.row);
            this.tell();
        }

        // A frame around the row of a token, or its column, and around an entry [row, column]; null: none. It is part of
        // the picture that is saved.
        frame(position, isRow, entry = null) {
            const plot = this.plot();
            if (!plot || !plot.data || !plot.data.length || !window.Plotly) return;
            const wanted = position === null || !this.now() || position >= this.shown.size ? [] : [{
                type: "rect", line: { width: 1.5, color: getComputedStyle(plot).getPropertyValue("--lock") },
                xref: isRow ? "paper" : "x", yref: isRow ? "y" : "paper",
                x0: isRow ? 0 : position - 0.5, x1: isRow ? 1 : position + 0.5,
                y0: isRow ? position - 0.5 : 0, y1: isRow ? position + 0.5 : 1,
            }];
            if (entry && this.now() && Math.max(...entry) < this.shown.size) wanted.push({
                type: "rect", line: { width: 2.5, color: getComputedStyle(plot).getPropertyValue("--lock") },
                x0: entry[1] - 0.5, x1: entry[1] + 0.5, y0: entry[0] - 0.5, y1: entry[0] + 0.5,
            });
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
