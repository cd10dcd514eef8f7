// A block of a matrix with the labels of its rows and its columns, as a circuit has, for the app.

import { CanvasPen, LABEL, STEPS, pictureOf, drawBar, make, same, showTip, whenThemeChanges, widest, within } from "./drawing.js";
import { HeadsElement } from "./element.js";

const MOST = 14; // characters of a label along an axis

// `show` gets {values, rows, columns, names, titles, quantity, most, stops, name}: entries row by row, labels of both sides
// along the axes, and `names` of both where more is said of the place that is pointed at. An entry that is clicked, or
// chosen by Enter, is an event `pick` of [row, column]; `frame` is one that is marked.
class MatrixMap extends EventTarget {
  constructor(box) {
    super();
    const canvas = make("canvas", { className: "map", tabIndex: 0 }), tip = make("div", { className: "map-tip", hidden: true });
    canvas.setAttribute("role", "img");
    const said = make("p", { className: "sr-only" });
    said.setAttribute("aria-live", "polite");
    Object.assign(this, { box, canvas, tip, said, matrix: null, frame: null, pointed: null, at: null, waits: 0, place: null });
    box.replaceChildren(canvas, tip, said);
    box.map = this;
    new ResizeObserver(() => this.later()).observe(box);
    whenThemeChanges(() => this.later());
    canvas.addEventListener("pointermove", (event) => this.point(this.entryAt(event), [event.clientX, event.clientY]));
    for (const left of ["pointerleave", "blur"]) canvas.addEventListener(left, () => this.point(null));
    canvas.addEventListener("click", (event) => this.pick(this.entryAt(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(matrix) {
    Object.assign(this, { matrix, pointed: null, picture: null });
    this.later();
  }

  mark(frame) {
    if (same(frame, this.frame)) return;
    this.frame = frame;
    this.later();
  }

  later() {
    this.waits ||= requestAnimationFrame(() => this.draw());
  }

  point(entry, at = null) {
    if (same(entry, this.pointed) && same(at, this.at)) return;
    if (!same(entry, this.pointed)) this.later();
    Object.assign(this, { pointed: entry, at });
    this.tell();
  }

  pick(entry) {
    if (entry) this.dispatchEvent(new CustomEvent("pick", { detail: entry }));
  }

  key(event) {
    const step = STEPS[event.key], { matrix, pointed } = this;
    if (!matrix || (!step && !(event.key === "Enter" && pointed))) return;
    event.preventDefault();
    if (!step) return this.pick(pointed);
    const [row, column] = pointed ?? [step[0] ? -step[0] : 0, step[1] ? -step[1] : 0];
    this.point([within(row + step[0], matrix.rows.length), within(column + step[1], matrix.columns.length)]);
  }

  entryAt({ offsetX, offsetY }) {
    const { matrix, place } = this;
    if (!matrix || !place) return null;
    const [down, across] = [(offsetY - place.top) / place.height, (offsetX - place.left) / place.width];
    if (!(down >= 0 && across >= 0 && down < 1 && across < 1)) return null;
    return [Math.floor(down * matrix.rows.length), Math.floor(across * matrix.columns.length)];
  }

  value([row, column]) {
    return this.matrix.values[row * this.matrix.columns.length + column];
  }

  // What is pointed at: beside the pointer, or where keys point, beside the entry.
  tell() {
    const { matrix, pointed, tip, said, place } = this;
    tip.hidden = !matrix || !pointed || !place;
    if (tip.hidden) return;
    const [row, column] = pointed, value = this.value(pointed), { left, top } = this.canvas.getBoundingClientRect();
    const lines = [`${matrix.titles[0]}  ${matrix.names[0][row]}`, `${matrix.titles[1]}  ${matrix.names[1][column]}`];
    const number = Number.isFinite(value) ? `${value.toFixed(4)} ${matrix.quantity}` : "nothing";
    const [x, y] = [place.left + ((column + 0.5) * place.width) / matrix.columns.length, place.top + ((row + 0.5) * place.height) / matrix.rows.length];
    showTip(tip, this.at ?? [left + x, top + y], lines, number);
    if (!this.at) said.textContent = [...lines, number].join(", ");
  }

  draw() {
    this.waits = 0;
    const { box, canvas, matrix } = this, [width, height] = [box.clientWidth, box.clientHeight];
    canvas.hidden = !matrix;
    if (!matrix) this.tell();
    if (!matrix || width < 60 || height < 60) return;
    canvas.setAttribute("aria-label", `${matrix.titles[0]} down, ${matrix.titles[1]} across, ${matrix.rows.length} × ${matrix.columns.length}. Arrow keys move, Enter chooses.`);
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    this.place = this.paint(new CanvasPen(canvas, width, height, window.devicePixelRatio || 1), width, height, "");
  }

  // The colour of a share of the way from the least to the largest.
  colour(share) {
    const { stops } = this.matrix, place = Math.max(0, Math.min(1, share)) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((from, channel) => Math.round(from + (stops[low + 1][channel] - from) * (place - low)));
  }

  // The entries, a pixel each.
  image() {
    const { values, rows, columns, least, most } = this.matrix, canvas = make("canvas", { width: columns.length, height: rows.length });
    const data = new ImageData(columns.length, rows.length);
    values.forEach((value, place) => Number.isFinite(value) && data.data.set([...this.colour((value - least) / (most - least)), 255], 4 * place));
    canvas.getContext("2d").putImageData(data, 0, 0);
    return canvas;
  }

  paint(pen, width, height, title) {
    const { matrix, pointed, frame } = this, style = getComputedStyle(this.box), css = {};
    for (const name of ["ink", "line", "quiet", "lock"]) css[name] = style.getPropertyValue(`--${name}`);
    const cut = (text) => (text.length > MOST ? `${text.slice(0, MOST - 1)}…` : text), [rows, columns] = [matrix.rows, matrix.columns].map((labels) => labels.map(cut));
    const left = 24 + Math.ceil(widest(rows)), bottom = 24 + Math.ceil(widest(columns)), top = title ? 40 : 6;
    const place = { left, top, width: Math.max(40, width - left - 62), height: Math.max(40, height - top - bottom) };
    const [wide, high] = [place.width / columns.length, place.height / rows.length];
    if (title) pen.text(title, left, 18, { size: 14, fill: css.ink });
    pen.image((this.picture ??= this.image()), [0, 0, columns.length, rows.length], left, top, place.width, place.height);
    pen.rect(left - 0.5, top - 0.5, place.width + 1, place.height + 1, { stroke: css.line });
    [[rows, high], [columns, wide]].forEach(([labels, unit], axis) => {
      const every = Math.ceil(LABEL / unit), here = pointed?.[axis] ?? null;
      labels.forEach((label, index) => {
        const near = here !== null && index !== here && Math.abs(index - here) * unit < LABEL;
        if (index !== here && (index % every || near)) return;
        const fill = index === here ? css.lock : css.ink, middle = (index + 0.5) * unit;
        if (axis === 0) pen.text(label, left - 5, top + middle, { size: 10.5, fill, align: "right" });
        else pen.text(label, left + middle, top + place.height + 5, { size: 10.5, fill, align: "right", turned: true });
      });
    });
    pen.text(matrix.titles[0], 8, top + place.height / 2, { fill: css.quiet, align: "center", turned: true });
    pen.text(matrix.titles[1], left + place.width / 2, height - 8, { fill: css.quiet, align: "center" });
    drawBar(pen, left + place.width + 10, top, place.height, [matrix.least, matrix.most], (share) => `rgb(${this.colour(share)})`, matrix.quantity, css);
    const box = ([row, column], apart, thick) => pen.rect(left + column * wide - apart, top + row * high - apart, wide + 2 * apart, high + 2 * apart, { stroke: css.lock, thick });
    if (frame && frame[0] < rows.length && frame[1] < columns.length) box(frame, Math.max(0, 4 - wide / 2), 1.5);
    if (pointed) box(pointed, 0, 1.5);
    return place;
  }

  // The picture as a file, in a size of its own.
  async file(format) {
    const [width, height] = [900, 820], surface = getComputedStyle(this.box.closest(".panel") ?? this.box).backgroundColor, { name } = this.matrix;
    return { name, content: await pictureOf(format, width, height, surface, (pen) => this.paint(pen, width, height, name)) };
  }
}

HeadsElement.parts.MatrixMap = MatrixMap;
