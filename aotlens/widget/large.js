// One head large: axes with tokens, a colour bar, the numbers of the entry that is pointed at.

import { NOTHING } from "./chosen.js";
import { CanvasPen, LABEL, STEPS, drawBar, make, pictureOf, showTip, widest, within } from "./drawing.js";

// The wheel zooms in where entries are small, a drag moves, a double click shows all.
const FINE = 12; // pixels of an entry below which the wheel zooms

export class LargeMap {
  constructor(box, heads) {
    const canvas = make("canvas", { className: "map", tabIndex: 0 }), tip = make("div", { className: "map-tip", hidden: true });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "One head: queries down, keys across. Arrow keys move, Enter locks, Escape lets go, + and - zoom.");
    const said = make("p", { className: "said" });
    said.setAttribute("aria-live", "polite");
    Object.assign(this, { box, heads, canvas, tip, said, window: null, drag: null, at: null });
    box.replaceChildren(canvas, tip, said);
    box.map = this;
    new ResizeObserver(() => {
      this.size = null;
      heads.later();
    }).observe(box);
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerleave", () => {
      this.at = null;
      heads.point();
    });
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.clientX, y: event.clientY, window: this.shown, moved: false };
    });
    canvas.addEventListener("click", (event) => {
      const cell = this.cellAt(event), moved = this.drag?.moved;
      this.drag = null;
      if (cell && !moved) heads.lockCell(cell);
    });
    canvas.addEventListener("dblclick", () => this.zoom(null));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  of() {
    return this.heads.maps;
  }

  // The part of the map that is shown: its first query, first key and how many of each.
  get shown() {
    return this.window ?? [0, 0, this.of()?.n ?? 0];
  }

  zoom(window) {
    const { n } = this.of();
    if (window) {
      const span = Math.max(Math.min(4, n), Math.min(n, window[2])), start = (value) => Math.max(0, Math.min(n - span, value));
      window = span >= n ? null : [start(window[0]), start(window[1]), span];
    }
    this.window = window;
    this.heads.later();
  }

  cellAt({ offsetX, offsetY }) {
    const { left, top, side } = this.place ?? {}, [query, key, span] = this.shown, { n } = this.of() ?? { n: 0 };
    const [down, across] = [(offsetY - top) / side, (offsetX - left) / side];
    if (!(down >= 0 && across >= 0 && down < 1 && across < 1)) return null;
    return [within(Math.floor(query + down * span), n), within(Math.floor(key + across * span), n)];
  }

  move(event) {
    if (!this.of()) return;
    const { drag } = this;
    if (drag && event.buttons === 1 && this.window) {
      const [query, key, span] = drag.window, unit = this.place.side / span;
      const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
      drag.moved ||= Math.hypot(x, y) > 4;
      if (drag.moved) return this.zoom([query - y / unit, key - x / unit, span]);
    }
    const cell = this.cellAt(event);
    this.at = cell && { x: event.clientX, y: event.clientY };
    this.heads.point(cell ? { cell } : NOTHING);
  }

  wheel(event) {
    const [query, key, span] = this.shown, cell = this.cellAt(event), { n } = this.of() ?? {};
    if (!cell || (!this.window && this.place.side / n >= FINE) || (!this.window && event.deltaY > 0)) return;
    event.preventDefault();
    const factor = Math.exp(event.deltaY / 400), [down, across] = [cell[0] + 0.5 - query, cell[1] + 0.5 - key];
    this.zoom([query + down * (1 - factor), key + across * (1 - factor), span * factor]);
  }

  key(event) {
    const step = STEPS[event.key], { heads } = this, { n } = this.of() ?? {}, [query, key, span] = this.shown;
    const factor = { "+": 0.7, "-": 1.4 }[event.key];
    if (!n) return;
    if (step) {
      const [from, to] = heads.shownCell ?? [step[0] ? -step[0] : 0, step[1] ? -step[1] : 0];
      heads.point({ cell: [within(from + step[0], n), within(to + step[1], n)] });
    } else if (event.key === "Enter" && heads.shownCell) heads.lockCell(heads.shownCell);
    else if (event.key === "Escape") heads.release();
    else if (factor) this.zoom([query + (span * (1 - factor)) / 2, key + (span * (1 - factor)) / 2, span * factor]);
    else return;
    event.preventDefault();
  }

  draw() {
    const { box, canvas, heads } = this, maps = this.of();
    canvas.hidden = !maps;
    if (maps && this.maps?.n !== maps.n) this.window = null;
    this.maps = maps;
    const [width, high] = (this.size ??= [box.clientWidth, box.clientHeight].map(Math.floor)), height = high || Math.min(width, 560);
    if (maps && width > 60) {
      Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      this.place = this.paint(new CanvasPen(canvas, width, height, window.devicePixelRatio || 1), width, height, maps);
    }
    if (maps) box.dataset.head = heads.head.join(".");
    else delete box.dataset.head;
    this.tell(maps);
  }

  // Draws into a pen, and gives the place of the map in it.
  paint(pen, width, height, maps, title = "") {
    const { heads } = this, [layer, head] = heads.head, { n } = maps, colours = maps.themes[heads.theme];
    const small = width < 480, most = small ? 7 : 12; // beside another map there is room for short labels only
    const [firstQuery, firstKey, span] = this.shown, cut = (text) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
    const names = maps.tokens.map(cut), margin = (maps.margins[most] ??= (small ? 8 : 24) + Math.ceil(widest(names)));
    const left = margin, top = title ? 40 : 6, right = small ? 44 : 62;
    let side = Math.max(40, Math.min(width - left - right, height - top - margin));
    if (4 * span <= side) side = Math.floor(side / span) * span; // entries of whole pixels, where that costs little room
    const unit = side / span, dense = unit * (window.devicePixelRatio || 1) < 1;
    const picture = maps.view?.(heads, this.shown, side) ?? maps.picture(layer, head, heads.hidesFirst, heads.theme, dense ? Math.floor(side) : Infinity);
    const scale = picture.width / n, entry = (position, from) => Math.max(0, Math.min(span, position - from)) * unit;
    if (title) pen.text(title, left, 18, { size: 14, fill: colours.css.ink });
    pen.image(picture, maps.view ? [0, 0, picture.width] : [firstKey * scale, firstQuery * scale, span * scale], left, top, side);
    pen.rect(left - 0.5, top - 0.5, side + 1, side + 1, { stroke: colours.css.line });
    this.labels(pen, { left, top, side, unit, names, colours, span: [firstQuery, firstKey, span] });
    if (!small) pen.text("query (destination)", 8, top + side / 2, { fill: colours.css.quiet, align: "center", turned: true });
    if (!small) pen.text("key (source)", left + side / 2, top + side + margin - 8, { fill: colours.css.quiet, align: "center" });
    this.bar(pen, maps, left + side + 10, top, side, colours, small ? "" : maps.quantity);
    const frame = (query, key, rows, columns, thick) => {
      const y = entry(query, firstQuery), x = entry(key, firstKey);
      const high = entry(query + rows, firstQuery) - y, wide = entry(key + columns, firstKey) - x;
      if (high > 0 && wide > 0) pen.rect(left + x, top + y, wide, high, { stroke: colours.css.lock, thick });
    };
    const { position, cell } = heads, pointed = heads.points ? heads.pointed.cell : null;
    if (position !== null && position < n) heads.direction === "to" ? frame(position, 0, 1, n, 1.5) : frame(0, position, n, 1, 1.5);
    if (cell && Math.max(...cell) < n) frame(...cell, 1, 1, 2.5);
    if (pointed) frame(...pointed, 1, 1, 1.5);
    return { left, top, side };
  }

  // Tokens along both axes, as many as do not overlap; those that are marked in any case, and none beside them.
  labels(pen, { left, top, side, unit, names, colours, span: [firstQuery, firstKey, span] }) {
    const { heads } = this, every = Math.ceil(LABEL / unit), [query, key] = heads.shownCell ?? [];
    const to = heads.direction === "to", marked = [to ? heads.shownPosition : query, to ? key : heads.shownPosition];
    [firstQuery, firstKey].forEach((first, axis) => {
      const mark = marked[axis] ?? null, isNear = (position) => mark !== null && position !== mark && Math.abs(position - mark) * unit < LABEL;
      for (let position = Math.ceil(first); position < Math.min(names.length, first + span); position++) {
        if (position !== mark && (position % every || isNear(position))) continue;
        const place = (position - first + 0.5) * unit, fill = position === mark ? colours.css.lock : colours.css.ink;
        if (place < 0 || place > side) continue;
        const size = Math.min(11, Math.max(9, unit - 1));
        if (axis === 0) pen.text(names[position], left - 5, top + place, { size, fill, align: "right" });
        else pen.text(names[position], left + place, top + side + 5, { size, fill, align: "right", turned: true });
      }
    });
  }

  bar(pen, maps, x, y, side, colours, title) {
    const [layer, head] = this.heads.head, most = maps.largest(layer, head, this.heads.hidesFirst), palette = maps.palette(this.heads.theme);
    const first = maps.signed ? 1 : 0;
    const colour = (share) => `rgb(${[0, 8, 16].map((bits) => (palette[Math.round(first + (255 - first) * share)] >> bits) & 255).join()})`;
    drawBar(pen, x, y, side, [maps.signed ? -most : 0, most], colour, title, colours.css);
  }

  // In words, what is pointed at or locked: in the line below the map, and beside the pointer.
  tell(maps) {
    const { heads, tip, said } = this, [layer, head] = heads.shownHead, cell = heads.shownCell, position = heads.shownPosition;
    const name = (place) => `${maps.tokens[place]} (${place})`, end = heads.position !== null ? " · locked; Escape lets go." : "";
    const fits = maps && (cell ? Math.max(...cell) < maps.n : position === null || position < maps.n);
    const seen = fits && cell && !(heads.hidesFirst && cell[1] === 0) && maps.sees(head, ...cell);
    const number = seen ? `${maps.quantity} ${heads.said(maps, heads.shownHead, ...cell)}` : "not visible";
    const which = maps?.which ?? `Head ${layer}.${head}`;
    let sentence = "Point at a token, at a head or at an entry; a click locks it.";
    if (fits && cell) sentence = `${which}: ${name(cell[0])} → ${name(cell[1])}, ${number}${end}`;
    else if (fits && position !== null) {
      const values = heads.slice(position), best = values.map((_, other) => other).filter((other) => Number.isFinite(values[other]));
      best.sort((one, other) => Math.abs(values[other]) - Math.abs(values[one]));
      const list = best.slice(0, 3).map((other) => `${name(other)} ${values[other].toPrecision(3)}`).join(", ");
      sentence = heads.direction === "to" ? `Head ${layer}.${head}: ${name(position)} attends to ${list}${end}` : `Head ${layer}.${head}: ${name(position)} gets attention from ${list}${end}`;
    }
    if (said.textContent !== sentence) said.textContent = sentence;
    tip.hidden = !(this.at && seen && heads.pointed.cell);
    if (tip.hidden) return;
    showTip(tip, [this.at.x, this.at.y], [`query  ${name(cell[0])}`, `key  ${name(cell[1])}`], number);
  }

  // The picture as a file, in a size of its own.
  async file(format) {
    const maps = this.of(), [layer, head] = this.heads.head, { surface } = maps.themes[this.heads.theme].css;
    const name = [maps.name, maps.which ?? `head ${layer}.${head}`, maps.quantity].filter(Boolean).join(" · "), [width, height] = [900, 820];
    const content = await pictureOf(format, width, height, surface, (pen) => this.paint(pen, width, height, maps, name));
    return { name, content };
  }
}
