// The maps of all heads on one prompt, drawn on canvas without a framework and without a server: the notebook, the report
// and the app use this one module (aotlens/widget). It is fed by packed arrays (packed.py, maps.py). `Maps` reads them,
// `Heads` holds what is chosen, locked and pointed at, and Strip, Grid, LargeMap and Ranking draw their part of it into an
// element that they are given. The element <aotlens-heads> has all parts but the ranking.

// ── packed arrays ─────────────────────────────────────────────────────────────────────────────────────────

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// What `pack` of packed.py packed: {header, arrays}, every array a Uint8Array.
function unpack(bytes) {
  let place = 4 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, place)));
  return { header, arrays: header.arrays.map((length) => bytes.subarray(place, (place += length))) };
}

// The numbers of one prompt: `HeadMaps` of maps.py. Attention to position 0 has a scale of its own. With `finer` an entry is
// known to half a 254th of a step.
class Maps {
  constructor(header, steps, visible, finer = null) {
    Object.assign(this, { ...header, n: header.positions, steps, visible, finer, lines: new Map(), pictures: new Map(), margins: {} });
  }

  static of(bytes) {
    const { header, arrays } = unpack(bytes);
    return new Maps(header, ...arrays);
  }

  sees(head, query, key) {
    return this.visible[((this.masks > 1 ? head : 0) * this.n + query) * this.n + key] === 1;
  }

  // What 255 steps, or 127 of numbers with a sign, stand for.
  top(layer, head, key) {
    return this.tops[2 * (layer * this.heads + head) + (key ? 1 : 0)];
  }

  // The largest magnitude that is shown; `most` where several maps have one scale, as the frames of a film.
  largest(layer, head, hidesFirst) {
    if (this.most) return this.most;
    const rest = this.n > 1 ? this.top(layer, head, 1) : 0;
    return hidesFirst ? rest || 1 : Math.max(rest, this.top(layer, head, 0));
  }

  value(layer, head, query, key) {
    const place = ((layer * this.heads + head) * this.n + query) * this.n + key, top = this.top(layer, head, key);
    const step = this.steps[place] + (this.finer ? (this.finer[place] - 128) / 254 : 0);
    return this.signed ? ((step - 128) / 127) * top : (step / 255) * top;
  }

  // Decimals of a number that is known to half a step.
  decimals(layer, head, key) {
    return this.finer ? 4 : Math.max(0, Math.ceil(-Math.log10(this.top(layer, head, key) / (this.signed ? 127 : 255))));
  }

  // Colours of 256 steps of a scale, as the bytes of a pixel.
  palette(theme, share = 1) {
    const rgb = this.themes[theme].stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
    const zero = this.signed ? 128 : 0;
    return Uint32Array.from({ length: 256 }, (_, step) => {
      const shown = Math.round(zero + (step - zero) * share);
      const place = (this.signed ? Math.max(0, shown - 1) / 254 : shown / 255) * (rgb.length - 1);
      const low = Math.min(Math.floor(place), rgb.length - 2);
      const [red, green, blue] = rgb[low].map((from, i) => Math.round(from + (rgb[low + 1][i] - from) * (place - low)));
      return (255 << 24) | (blue << 16) | (green << 8) | red;
    });
  }

  // A canvas of one head's entries, a pixel each; with more than `most` a side, of the largest in each block of entries.
  picture(layer, head, hidesFirst, theme, most = Infinity) {
    const block = Math.max(1, Math.ceil(this.n / most)), side = Math.ceil(this.n / block);
    const name = [layer, head, hidesFirst, theme, block].join();
    if (this.pictures.has(name)) return this.pictures.get(name);
    if (this.pictures.size > 3 * this.layers * this.heads) this.pictures.clear();
    const { n } = this, start = (layer * this.heads + head) * n * n, mask = this.masks > 1 ? head * n * n : 0;
    const largest = this.largest(layer, head, hidesFirst), zero = this.signed ? 128 : 0;
    const first = this.top(layer, head, 0) / largest, rest = this.top(layer, head, 1) / largest;
    const palettes = [this.palette(theme, first), this.palette(theme, rest)];
    const canvas = Object.assign(document.createElement("canvas"), { width: side, height: side });
    const data = new ImageData(side, side), pixels = new Uint32Array(data.data.buffer), sizes = new Float32Array(side * side).fill(-1);
    for (let query = 0; query < n; query++) {
      for (let key = hidesFirst ? 1 : 0; key < n; key++) {
        if (this.visible[mask + query * n + key] !== 1) continue;
        const step = this.steps[start + query * n + key], size = Math.abs(step - zero) * (key ? rest : first);
        const place = block === 1 ? query * n + key : Math.floor(query / block) * side + Math.floor(key / block);
        if (size <= sizes[place]) continue;
        sizes[place] = size;
        pixels[place] = palettes[key ? 1 : 0][step];
      }
    }
    canvas.getContext("2d").putImageData(data, 0, 0);
    this.pictures.set(name, canvas);
    return canvas;
  }
}

// ── what is chosen, locked and pointed at ─────────────────────────────────────────────────────────────────

const RESTS = 150; // milliseconds after which somebody who points at a token wants its exact numbers
const NOTHING = { position: null, cell: null, head: null };

// `maps` are the full model's and `without` those of a run without the heads that are `off`. A token is locked by its
// `position`, an entry by its `cell`, [query, key]. A choice of the reader's is an event `choose`, `lock` or `off`;
// `set` is for what somebody else has chosen. With `holds`, pointing does nothing while something is locked.
class Heads extends EventTarget {
  constructor(values = {}) {
    super();
    Object.assign(this, {
      maps: null, without: null, head: [0, 0], position: null, cell: null, direction: "to", hidesFirst: false, off: [], motifs: null,
      rank: null, theme: themeOfPage(), pointed: NOTHING, holds: false, ask: null, asks: false, waits: false,
      parts: new Map(), frame: 0, rests: 0, ...values,
    });
    whenThemeChanges((theme) => this.set({ theme }));
  }

  // A part in an element, which it keeps for as long as the element is in the document.
  part(Part, box) {
    if (box && !this.parts.has(box)) this.parts.set(box, new Part(box, this));
    this.later();
  }

  set(values) {
    const isMaps = (value) => value instanceof Maps, same = (one, other) => one === other || (!isMaps(one) && !isMaps(other) && JSON.stringify(one) === JSON.stringify(other));
    const changed = Object.keys(values).some((name) => !same(values[name], this[name]));
    Object.assign(this, values);
    if (changed) this.later();
  }

  later() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const { maps, head } = this;
    if (maps && (head[0] >= maps.layers || head[1] >= maps.heads)) this.head = [0, 0]; // another model's
    for (const [box, part] of this.parts) {
      if (!box.isConnected) this.parts.delete(box);
      else part.draw();
    }
    for (const each of [maps, this.without]) each?.drawn?.(this);
    this.dispatchEvent(new Event("drawn"));
  }

  tell(name) {
    this.later();
    this.dispatchEvent(new CustomEvent(name, { detail: { head: this.head, position: this.position, cell: this.cell, off: this.off } }));
  }

  choose(layer, head) {
    this.head = [layer, head];
    this.tell("choose");
  }

  lock(position) {
    this.position = position === this.position ? null : position;
    if (this.cell && this.cell[this.direction === "to" ? 0 : 1] !== this.position) this.cell = null;
    this.tell("lock");
  }

  lockCell(cell) {
    const again = this.cell && String(this.cell) === String(cell);
    this.cell = again ? null : cell;
    this.position = again ? null : cell[this.direction === "to" ? 0 : 1];
    this.tell("lock");
  }

  release() {
    if (this.position === null && this.pointed === NOTHING) return;
    Object.assign(this, { position: null, cell: null, pointed: NOTHING });
    this.tell("lock");
  }

  toggle(layer, head) {
    const others = this.off.filter(([l, h]) => l !== layer || h !== head);
    this.off = others.length < this.off.length ? others : [...others, [layer, head]];
    this.off.sort(([l, h], [other, number]) => l - other || h - number);
    this.tell("off");
  }

  point(place = NOTHING) {
    if (String(Object.values(place)) === String(Object.values(this.pointed))) return;
    this.pointed = { ...NOTHING, ...place };
    clearTimeout(this.rests);
    if (this.ask && place !== NOTHING) this.rests = setTimeout(() => this.exact(), RESTS);
    this.later();
  }

  // Whether pointing counts now.
  get points() {
    return !(this.holds && this.position !== null);
  }

  get shownHead() {
    return (this.points && this.pointed.head) || this.head;
  }

  // The entry that is shown: pointed at, or else locked.
  get shownCell() {
    return this.points && (this.pointed.cell || this.pointed.position !== null) ? this.pointed.cell : this.cell;
  }

  // The token whose row, or with the direction "from" whose column, is shown.
  get shownPosition() {
    if (!this.points) return this.position;
    const { cell, position } = this.pointed;
    return (cell ? cell[this.direction === "to" ? 0 : 1] : position) ?? this.position;
  }

  sees(head, query, key) {
    return !(this.hidesFirst && key === 0) && this.maps.sees(head, query, key);
  }

  // Of a token: an exact row and column where they have been asked for.
  line(maps, [layer, head], position) {
    return maps.lines.get([layer, head, position].join());
  }

  // Asks for the rows and columns that are shown, of one token at a time: whoever points at one after another meanwhile gets
  // those of the last.
  async exact() {
    const { maps, shownHead: head } = this, lacks = (position) => position < maps.n && !this.line(maps, head, position);
    const position = maps && [this.shownCell?.[0], this.shownPosition].find((each) => Number.isInteger(each) && lacks(each));
    this.waits = this.asks;
    if (this.asks || !Number.isInteger(position)) return;
    this.asks = true;
    const all = [maps, this.without].filter(Boolean), lines = await Promise.allSettled(all.map((each) => this.ask(each, head, position)));
    this.asks = false;
    lines.forEach(({ value }, place) => value && all[place].lines.set([...head, position].join(), value));
    this.later();
    if (this.waits || lines[0].value) this.exact();
  }

  // The number of an entry as text.
  said(maps, [layer, head], query, key) {
    const line = this.line(maps, [layer, head], query), value = line ? line.row[key] : maps.value(layer, head, query, key);
    return Number.isNaN(value) ? "…" : value.toFixed(line ? 4 : maps.decimals(layer, head, key));
  }

  // The numbers that belong to a token: the attention from it, or to it; NaN where nothing is shown.
  slice(position) {
    const { maps, shownHead } = this, [layer, head] = shownHead, to = this.direction === "to";
    const line = this.line(maps, shownHead, position);
    return Array.from({ length: maps.n }, (_, other) => {
      const [query, key] = to ? [position, other] : [other, position];
      if (!this.sees(head, query, key)) return NaN;
      return line ? (to ? line.row : line.column)[other] : maps.value(layer, head, query, key);
    });
  }
}

// ── light and dark ────────────────────────────────────────────────────────────────────────────────────────

// As a site's own switch (data-theme), the app, Jupyter or VS Code says of itself, or else as the browser's user prefers.
function themeOfPage() {
  const { theme, mantineColorScheme } = document.documentElement.dataset, said = theme ?? mantineColorScheme;
  if (said === "light" || said === "dark") return said;
  const { jpThemeLight, vscodeThemeKind } = document.body?.dataset ?? {};
  if (jpThemeLight !== undefined) return jpThemeLight === "false" ? "dark" : "light";
  if (vscodeThemeKind !== undefined) return vscodeThemeKind.includes("dark") ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

// Calls back with the theme whenever it changes; what it returns ends that.
function whenThemeChanges(callback) {
  const changed = () => callback(themeOfPage()), dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", changed);
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "data-mantine-color-scheme"] });
  if (document.body) observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  return () => {
    dark.removeEventListener("change", changed);
    observer.disconnect();
  };
}

// ── pens: one drawing for the screen, PNG and SVG ─────────────────────────────────────────────────────────

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

class CanvasPen {
  constructor(canvas, width, height, ratio) {
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    this.pen = canvas.getContext("2d");
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    Object.assign(this.pen, { imageSmoothingEnabled: false, textBaseline: "middle" });
  }

  rect(x, y, width, height, { fill, stroke, thick = 1 }) {
    if (fill) Object.assign(this.pen, { fillStyle: fill }).fillRect(x, y, width, height);
    if (stroke) Object.assign(this.pen, { strokeStyle: stroke, lineWidth: thick }).strokeRect(x, y, width, height);
  }

  text(string, x, y, { size = 11, fill, align = "left", turned = false }) {
    const { pen } = this, font = `${size}px ${FONT}`;
    if (this.font !== font) pen.font = this.font = font; // to read it again takes longer than to draw
    Object.assign(pen, { textAlign: align, fillStyle: fill });
    if (!turned) return pen.fillText(string, x, y);
    pen.translate(x, y);
    pen.rotate(-Math.PI / 2);
    pen.fillText(string, 0, 0);
    pen.rotate(Math.PI / 2);
    pen.translate(-x, -y);
  }

  image(canvas, [left, top, span], x, y, side) {
    this.pen.drawImage(canvas, left, top, span, span, x, y, side, side);
  }
}

class SvgPen {
  constructor(width, height) {
    Object.assign(this, { width, height, parts: [] });
  }

  rect(x, y, width, height, { fill = "none", stroke = "none", thick = 1 }) {
    this.parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${fill}" stroke="${stroke}" stroke-width="${thick}"/>`);
  }

  text(string, x, y, { size = 11, fill, align = "left", turned = false }) {
    const text = new Option(string).innerHTML, anchor = { left: "start", right: "end", center: "middle" }[align];
    const place = `transform="translate(${x} ${y})${turned ? " rotate(-90)" : ""}" dominant-baseline="central" text-anchor="${anchor}"`;
    this.parts.push(`<text ${place} font-size="${size}" font-family="${FONT}" fill="${fill}">${text}</text>`);
  }

  image(canvas, [left, top, span], x, y, side) {
    const inner = `<image href="${canvas.toDataURL()}" width="${canvas.width}" height="${canvas.height}" style="image-rendering: pixelated"/>`;
    this.parts.push(`<svg x="${x}" y="${y}" width="${side}" height="${side}" viewBox="${left} ${top} ${span} ${span}">${inner}</svg>`);
  }

  toString() {
    const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${this.parts.join("")}</svg>`;
  }
}

// ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const within = (value, size) => Math.max(0, Math.min(size - 1, value));
const same = (one, other) => String(one) === String(other);

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// Whether an element is to look otherwise than when it was drawn last: a choice leaves most elements as they are.
const looks = new WeakMap();
function differs(element, ...look) {
  const text = String(look), known = looks.get(element) === text;
  looks.set(element, text);
  return !known;
}

// The tokens, or patches over their picture: shaded by the shown token's row or column; a click locks one.
class Strip {
  constructor(box, heads) {
    Object.assign(this, { box, heads });
    const chipOf = ({ target }) => target.closest?.(".chip");
    const point = (event) => chipOf(event) && heads.point({ position: Number(chipOf(event).dataset.position) });
    box.addEventListener("pointerover", point);
    box.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && point(event));
    for (const left of ["pointerleave", "focusout"]) box.addEventListener(left, () => heads.point());
    box.addEventListener("click", (event) => chipOf(event) && heads.lock(Number(chipOf(event).dataset.position)));
    box.addEventListener("keydown", (event) => {
      const here = chipOf(event) && Number(chipOf(event).dataset.position), last = heads.maps?.n - 1;
      const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") heads.release();
      if (to === undefined || to < 0 || to > last) return;
      event.preventDefault();
      this.chips.forEach((chip, position) => (chip.tabIndex = position === to ? 0 : -1));
      this.chips[to].focus();
    });
  }

  fill() {
    const { maps } = this.heads, { strip } = maps ?? {};
    this.maps = maps;
    this.chips = (maps?.tokens ?? []).map((text, position) => {
      const chip = make("button", { type: "button", className: "chip", title: maps.titles[position], tabIndex: position ? -1 : 0 });
      chip.classList.toggle("chip-space", maps.spaces.includes(position));
      chip.textContent = strip && position >= strip.n_before ? "" : text;
      chip.setAttribute("aria-label", `${text}, position ${position}`);
      chip.dataset.position = position;
      return chip;
    });
    this.box.replaceChildren(...this.chips);
    if (!strip) return;
    const patches = make("div", { className: "picture" }, ...this.chips.slice(strip.n_before));
    Object.assign(patches.style, { gridTemplateColumns: `repeat(${strip.columns}, 26px)`, backgroundImage: `url(${strip.picture})` });
    this.box.append(patches);
  }

  draw() {
    const { heads } = this, { maps } = heads;
    if (this.maps !== maps) this.fill();
    if (!maps) return;
    const here = heads.shownPosition, [layer, head] = heads.shownHead, to = heads.direction === "to", blank = here === null && maps;
    if (blank && this.blank === blank) return; // of thousands of tokens, to look at each takes longer than all else
    this.blank = blank;
    const values = here === null || here >= maps.n ? [] : heads.slice(here);
    const top = values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
    this.chips.forEach((chip, position) => {
      const value = values[position], share = top && Number.isFinite(value) ? value / top : 0, other = to ? position : here;
      const isKey = Boolean(heads.shownCell) && position === heads.shownCell[to ? 1 : 0], heat = `${(100 * Math.abs(share)).toFixed(0)}%`;
      const text = Math.abs(share) < 0.04 ? "" : value.toFixed(Math.min(2, maps.decimals(layer, head, other))).replace(/^(-?)0\./, "$1.");
      if (!differs(chip, heat, text, share < 0, position === here, position === heads.position, isKey)) return;
      chip.style.setProperty("--heat", heat);
      for (const [name, on] of [["chip-negative", share < 0], ["chip-here", position === here], ["chip-locked", position === heads.position], ["chip-key", isKey]])
        chip.classList.toggle(name, on);
      chip.setAttribute("aria-pressed", String(position === heads.position));
      if (text) chip.dataset.value = text;
      else delete chip.dataset.value;
    });
  }
}

// A tile a head: its map with nothing over it, its name and what it is known for beside it, and a corner that switches it
// off. Of the run without the heads that are off, where there is one.
class Grid {
  constructor(box, heads, { switches = true } = {}) {
    Object.assign(this, { box, heads, switches, cells: [] });
    const cellOf = ({ target }) => target.closest?.(".cell");
    const headOf = (element) => [Number(element.dataset.layer), Number(element.dataset.head)];
    box.addEventListener("click", (event) => {
      const button = event.target.closest?.(".head-switch");
      if (button) heads.toggle(...headOf(button));
      else if (cellOf(event)) heads.choose(...headOf(cellOf(event)));
    });
    box.addEventListener("pointermove", (event) => {
      const cell = cellOf(event), { n } = heads.maps ?? {};
      if (!cell || event.target.localName !== "canvas") return heads.point();
      const place = (offset, side) => within(Math.floor((offset / side) * n), n);
      const { offsetX, offsetY, target } = event;
      heads.point({ head: headOf(cell), cell: [place(offsetY, target.clientHeight), place(offsetX, target.clientWidth)] });
    });
    box.addEventListener("pointerleave", () => heads.point());
    new ResizeObserver(() => {
      this.width = null;
      heads.later();
    }).observe(box);
    box.addEventListener("keydown", (event) => {
      const step = STEPS[event.key], { maps, head } = heads;
      if (!maps || !event.target.closest(".cell, .head-switch")) return;
      if (event.key === "x" && this.switches) heads.toggle(...headOf(event.target.closest("[data-layer]")));
      if (!step) return;
      event.preventDefault();
      heads.choose(within(head[0] + step[0], maps.layers), within(head[1] + step[1], maps.heads));
      this.cells[heads.head[0] * maps.heads + heads.head[1]].focus();
    });
  }

  fill(maps) {
    this.box.style.setProperty("--layers", maps.layers);
    this.box.style.setProperty("--heads", maps.heads);
    this.box.classList.toggle("grid-tall", maps.layers > maps.heads);
    this.cells = Array.from({ length: maps.layers * maps.heads }, (_, place) => {
      const [layer, head] = [Math.floor(place / maps.heads), place % maps.heads];
      const label = make("span", { className: "cell-label", textContent: `${layer}.${head}` });
      const cell = make("button", { type: "button", className: "cell" }, label, make("canvas"));
      Object.assign(cell.dataset, { layer, head });
      return cell;
    });
    const tiles = this.cells.map((cell) => {
      const { layer, head } = cell.dataset, toggle = make("button", { type: "button", className: "head-switch", tabIndex: -1 });
      toggle.setAttribute("aria-label", `Ablate head ${layer}.${head}`);
      Object.assign(toggle.dataset, { layer, head });
      return make("div", { className: "tile" }, cell, ...(this.switches ? [toggle] : []));
    });
    this.box.replaceChildren(...tiles);
    this.width = null;
  }

  draw() {
    const { heads } = this, maps = heads.without ?? heads.maps;
    if (!maps) return this.box.replaceChildren((this.cells = [], ""));
    if (this.cells.length !== maps.layers * maps.heads || this.box.style.getPropertyValue("--heads") !== String(maps.heads)) this.fill(maps);
    this.width ??= this.cells[0].lastChild.clientWidth; // to ask in each frame would lay the page out anew
    const look = [heads.hidesFirst, heads.theme, this.width].join();
    if (this.maps !== maps || this.look !== look) this.paint(maps);
    const { motifs, rank } = heads, best = new Map(ranked(heads).filter(([, , isBest]) => isBest).map(([name], index) => [name, index + 1]));
    for (const cell of this.cells) {
      const { layer, head } = cell.dataset, name = `${layer}.${head}`, here = same(heads.head, [layer, head]);
      const off = heads.off.some((each) => same(each, [layer, head]));
      if (!differs(cell, here, off, motifs?.badges[name], motifs?.says[name], rank && best.get(name))) continue;
      cell.classList.toggle("cell-chosen", here);
      cell.classList.toggle("cell-off", off);
      cell.tabIndex = here ? 0 : -1;
      cell.setAttribute("aria-label", `Head ${name}${off ? ", ablated" : ""}`);
      if (here) cell.setAttribute("aria-current", "true");
      else cell.removeAttribute("aria-current");
      cell.nextSibling?.setAttribute("aria-pressed", String(off));
      for (const [key, value] of Object.entries({ motif: motifs?.badges[name], tip: motifs?.says[name], best: rank && best.get(name) })) {
        if (value) cell.dataset[key] = value;
        else delete cell.dataset[key];
      }
    }
  }

  paint(maps) {
    const { width } = this, { hidesFirst, theme } = this.heads;
    Object.assign(this, { maps, look: [hidesFirst, theme, width].join() });
    const most = within(Math.round((width || 96) * (window.devicePixelRatio || 1)), 257);
    for (const cell of this.cells) {
      const picture = maps.picture(Number(cell.dataset.layer), Number(cell.dataset.head), hidesFirst, theme, Math.max(24, most));
      const canvas = Object.assign(cell.lastChild, { width: picture.width, height: picture.height });
      canvas.getContext("2d").drawImage(picture, 0, 0);
    }
  }
}

// Heads by the score of a motif, best first: [name, score, whether it is among the best].
const BEST = 5, LEAST = 0.1;
function ranked({ motifs, rank }) {
  const scores = Object.entries(motifs?.scores[rank] ?? {}).sort((one, other) => other[1] - one[1]);
  return scores.map(([name, score], index) => [name, score, index < BEST && score >= LEAST]);
}

class Ranking {
  constructor(box, heads) {
    Object.assign(this, { box, heads, list: null });
    const buttonOf = ({ target }) => target.closest?.(".ranked-head");
    box.addEventListener("click", (event) => buttonOf(event) && heads.choose(...buttonOf(event).dataset.head.split(".").map(Number)));
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: "previousSibling", ArrowRight: "nextSibling" }[event.key], to = step && buttonOf(event)?.[step];
      if (!to) return;
      event.preventDefault();
      to.focus();
    });
  }

  draw() {
    const { heads, box } = this, list = JSON.stringify([heads.rank, heads.motifs?.scores[heads.rank]]);
    if (list !== this.list) {
      this.list = list;
      box.replaceChildren(...ranked(heads).map(([name, score, isBest], index) => {
        const className = isBest ? "ranked-head ranked-head-best" : "ranked-head";
        const button = make("button", { type: "button", className, textContent: `${name} ${score.toFixed(2).replace(/^0/, "")}` });
        Object.assign(button.dataset, { head: name });
        button.tabIndex = index ? -1 : 0;
        return button;
      }));
    }
    const here = heads.head.join(".");
    for (const button of box.children) if (differs(button, button.dataset.head === here)) button.setAttribute("aria-pressed", String(button.dataset.head === here));
  }
}

// One head large: axes with tokens, a colour bar, the numbers of the entry that is pointed at. The wheel zooms in where
// entries are small, a drag moves, a double click shows all.
const LABEL = 12; // pixels that a label takes, across
const FINE = 12; // pixels of an entry below which the wheel zooms
function widest(names) {
  const pen = make("canvas").getContext("2d");
  pen.font = `11px ${FONT}`;
  return Math.max(...names.map((name) => pen.measureText(name).width));
}

class LargeMap {
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
    const least = maps.signed ? -most : 0, first = maps.signed ? 1 : 0, steps = 64;
    for (let step = 0; step < steps; step++) {
      const pixel = palette[Math.round(first + ((255 - first) * step) / (steps - 1))], [red, green, blue] = [0, 8, 16].map((bits) => (pixel >> bits) & 255);
      pen.rect(x, y + side * (1 - (step + 1) / steps), 10, side / steps + 0.5, { fill: `rgb(${red}, ${green}, ${blue})` });
    }
    pen.rect(x, y, 10, side, { stroke: colours.css.line });
    const raw = (most - least) / 6, power = 10 ** Math.floor(Math.log10(raw));
    const gap = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
    for (let tick = Math.ceil(least / gap); tick * gap <= most * 1.0001; tick++) {
      const place = y + side * (1 - (tick * gap - least) / (most - least));
      pen.text(String(Number((tick * gap).toPrecision(6))), x + 14, place, { size: 10, fill: colours.css.ink });
    }
    pen.text(title, x + 46, y + side / 2, { fill: colours.css.quiet, align: "center", turned: true });
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
    tip.replaceChildren(`query  ${name(cell[0])}`, make("br"), `key  ${name(cell[1])}`, make("br"), make("b", { textContent: number }));
    const { x, y } = this.at, right = x + 14 + tip.offsetWidth > innerWidth;
    Object.assign(tip.style, { left: `${right ? x - 14 - tip.offsetWidth : x + 14}px`, top: `${y + 14}px` });
  }

  // The picture as a file, in a size of its own.
  async file(format) {
    const maps = this.of(), [layer, head] = this.heads.head, { surface } = maps.themes[this.heads.theme].css;
    const name = [maps.name, maps.which ?? `head ${layer}.${head}`, maps.quantity].filter(Boolean).join(" · "), [width, height] = [900, 820];
    const canvas = make("canvas"), pen = format === "svg" ? new SvgPen(width, height) : new CanvasPen(canvas, width, height, 2);
    pen.rect(0, 0, width, height, { fill: surface });
    this.paint(pen, width, height, maps, name);
    const content = format === "svg" ? new Blob([String(pen)], { type: "image/svg+xml" }) : await new Promise((done) => canvas.toBlob(done));
    return { name, content };
  }
}

// ── two runs side by side, and their difference ───────────────────────────────────────────────────────────

// A head of the right run less one of the left run, at the positions of the left text: `places` are pairs [left, right] of
// positions that correspond. Colours and numbers are as of one head, 0.0.
function differenceOf(left, head, right, other, places) {
  const { n } = left, values = new Float32Array(n * n), visible = new Uint8Array(n * n), tops = [0, 0];
  for (const [query, otherQuery] of places)
    for (const [key, otherKey] of places) {
      if (!left.sees(head[1], query, key) || !right.sees(other[1], otherQuery, otherKey)) continue;
      const value = right.value(...other, otherQuery, otherKey) - left.value(...head, query, key), rest = key ? 1 : 0;
      values[query * n + key] = value;
      visible[query * n + key] = 1;
      tops[rest] = Math.max(tops[rest], Math.abs(value));
    }
  const steps = new Uint8Array(n * n), finer = new Uint8Array(n * n);
  values.forEach((value, place) => {
    const exact = 128 + (127 * value) / (tops[place % n ? 1 : 0] || 1);
    steps[place] = Math.round(exact);
    finer[place] = Math.round(128 + 254 * (exact - steps[place]));
  });
  const { tokens, titles, spaces, themes, signed_themes, quantity } = left, which = `Right − left, ${other.join(".")} − ${head.join(".")}`;
  const header = { tokens, titles, spaces, quantity, which, positions: n, layers: 1, heads: 1, masks: 1, signed: true, tops: tops.map((top) => top || 1) };
  const maps = new Maps({ ...header, themes: signed_themes ?? themes, name: [right.name, left.name].join(" − ") }, steps, visible, finer);
  return Object.assign(maps, { isZero: !tops[0] && !tops[1] });
}

// The same maps on the scale of a largest magnitude that is given.
const onScale = (maps, most) => Object.assign(Object.create(maps), { largest: () => most, pictures: new Map() });

// What is chosen, locked and pointed at in one pane; where positions correspond, the others follow.
class Pane extends Heads {
  constructor(both, side) {
    super({ both, side });
  }

  get others() {
    const { panes, aligned } = this.both;
    return Object.values(panes).filter((pane) => pane !== this && (aligned || (pane.side !== "right" && this.side !== "right")));
  }

  point(place) {
    super.point(place);
    for (const other of this.others) Heads.prototype.point.call(other, place);
  }

  tell(name) {
    const { position, cell, side } = this;
    super.tell(name);
    for (const other of this.others) other.set({ position, cell });
    if (name === "lock") this.both.dispatchEvent(new CustomEvent("lock", { detail: { side, position } }));
  }
}

// Two runs' maps, `left` and `right`, one head of each, on one scale, and their difference. `heads` are [left, right];
// `places` is null where nothing corresponds; `aligned`, where positions are the same; `pairs` are heads that belong together.
// A pair that is picked in the `PairGrid` is an event `pair`.
class SideBySide extends EventTarget {
  constructor() {
    super();
    Object.assign(this, { left: null, right: null, heads: [[0, 0], [0, 0]], places: null, aligned: false, hidesFirst: false, pairs: [] });
    this.panes = {};
    for (const side of ["left", "right", "difference"]) this.panes[side] = new Pane(this, side);
  }

  set(values) {
    Object.assign(this, values);
    const { left, right, heads: [head, other], places, hidesFirst, panes } = this, both = left && right;
    const most = both && Math.max(left.largest(...head, hidesFirst), right.largest(...other, hidesFirst));
    panes.left.set({ maps: both ? onScale(left, most) : left, head, hidesFirst });
    panes.right.set({ maps: both ? onScale(right, most) : right, head: other, hidesFirst });
    panes.difference.set({ maps: both && places ? differenceOf(left, head, right, other, places) : null, head: [0, 0], hidesFirst });
  }

  lock(side, position) {
    this.panes[side].set({ position, cell: null });
  }
}

// All pairs of heads: a button a pair, with both maps, each on a scale of its own. A part of the left pane.
class PairGrid {
  constructor(box, { both }) {
    Object.assign(this, { box, both, pairs: null, look: "" });
    const buttonOf = ({ target }) => target.closest?.(".pair");
    box.addEventListener("click", (event) => {
      const place = [...box.children].indexOf(buttonOf(event));
      if (place >= 0) both.dispatchEvent(new CustomEvent("pair", { detail: both.pairs[place] }));
    });
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: "previousSibling", ArrowRight: "nextSibling" }[event.key], to = step && buttonOf(event)?.[step];
      if (!to) return;
      event.preventDefault();
      for (const button of box.children) button.tabIndex = button === to ? 0 : -1;
      to.focus();
    });
    new ResizeObserver(() => both.panes.left.later()).observe(box);
  }

  draw() {
    const { box, both } = this, { pairs, heads, left, right, hidesFirst } = both;
    if (pairs !== this.pairs) {
      Object.assign(this, { pairs, look: "" });
      box.replaceChildren(...pairs.map(({ left, right, label, tip }, place) => {
        const button = make("button", { type: "button", className: "pair", title: tip, tabIndex: place ? -1 : 0 });
        button.append(make("span", { className: "pair-name", textContent: label }), make("canvas"), make("canvas"));
        Object.assign(button.dataset, { left: left.join("."), right: right.join(".") });
        return button;
      }));
    }
    for (const button of box.children) button.setAttribute("aria-pressed", String(same([button.dataset.left, button.dataset.right], heads.map((head) => head.join(".")))));
    const { theme } = both.panes.left, look = [left?.question, right?.question, hidesFirst, theme].join();
    if (!left || !right || !box.clientWidth || look === this.look) return;
    this.look = look;
    pairs.forEach((pair, place) => {
      const canvases = box.children[place].querySelectorAll("canvas");
      for (const [maps, head, canvas] of [[left, pair.left, canvases[0]], [right, pair.right, canvases[1]]]) {
        const picture = maps.picture(...head, hidesFirst, theme, 112);
        Object.assign(canvas, { width: picture.width, height: picture.height }).getContext("2d").drawImage(picture, 0, 0);
      }
    });
  }
}

// ── the element ───────────────────────────────────────────────────────────────────────────────────────────

// <aotlens-heads data-packed="…">, or `show(header, steps, visible)`. It says in its dataset what is shown, and tells of it
// by the event `heads`.
class HeadsElement extends HTMLElement {
  static parts = { Heads, Maps, Strip, Grid, LargeMap, Ranking, SideBySide, PairGrid };

  connectedCallback() {
    this.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take arrow keys and Escape for its own
    if (this.dataset.packed && !this.heads && typeof DecompressionStream !== "undefined")
      inflate(this.dataset.packed).then((bytes) => {
        const { header, arrays } = unpack(bytes);
        this.show(header, ...arrays);
        this.place(header.place ?? { head: header.head, query: null, key: null });
      });
  }

  show(header, steps, visible) {
    const heads = (this.heads ??= this.build()), maps = new Maps(header, steps, visible);
    heads.set({ maps, head: header.head, position: null, cell: null, pointed: NOTHING });
    this.choice.lastChild.textContent = ` Leave out ${maps.tokens[0]} (0), which may drown the rest`;
    this.dataset.drawn = "yes";
  }

  build() {
    const heads = new Heads({ holds: true }), root = this.attachShadow({ mode: "open" });
    const first = make("input", { type: "checkbox" }), from = make("input", { type: "checkbox" });
    const title = make("figcaption"), map = make("div", { className: "large" }), grid = make("div", { className: "grid" });
    const strip = make("div", { className: "strip" });
    for (const [box, label] of [[strip, "The text, token by token"], [grid, "All heads: layers down, heads across. Arrow keys choose a head."]]) {
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", label);
    }
    this.choice = make("label", { className: "choice" }, first, "");
    const direction = make("label", { className: "choice" }, from, " Shade tokens by attention to them");
    const all = make("figure", {}, make("figcaption", { textContent: "All heads: layer down, head across" }), grid);
    const both = make("div", { className: "both" }, all, make("figure", { className: "one" }, title, map));
    root.replaceChildren(make("style", { textContent: CSS }), strip, this.choice, direction, both);
    heads.part(Strip, strip);
    heads.parts.set(grid, new Grid(grid, heads, { switches: false }));
    heads.part(LargeMap, map);
    both.before(map.querySelector(".said"));
    first.addEventListener("change", () => heads.set({ hidesFirst: first.checked }));
    from.addEventListener("change", () => heads.set({ direction: from.checked ? "from" : "to" }));
    root.addEventListener("keydown", ({ key }) => key === "Escape" && heads.release());
    heads.addEventListener("drawn", () => {
      for (const [name, colour] of Object.entries(heads.maps.themes[heads.theme].css)) this.style.setProperty(`--${name}`, colour);
      title.textContent = `Head ${heads.head.join(".")}: query down, key across`;
      Object.assign(this.dataset, { head: heads.head.join("."), ...this.told(), held: heads.position !== null });
    });
    for (const name of ["choose", "lock"])
      heads.addEventListener(name, () => {
        heads.draw();
        this.dispatchEvent(new CustomEvent("heads", { detail: { head: heads.head, held: heads.position !== null, ...this.told() } }));
      });
    return heads;
  }

  // The query and the key that are shown, each "" where there is none.
  told() {
    const { shownCell, shownPosition, direction } = this.heads;
    if (shownCell) return { query: shownCell[0], key: shownCell[1] };
    return { query: direction === "to" ? (shownPosition ?? "") : "", key: direction === "to" ? "" : (shownPosition ?? "") };
  }

  // What somebody else has chosen: a head, and a query or an entry that is locked (null for none).
  place({ head, query, key }) {
    this.heads.set({ head, position: query === null ? null : this.heads.direction === "from" && key !== null ? key : query, cell: query === null || key === null ? null : [query, key] });
  }
}

if (!customElements.get("aotlens-heads")) customElements.define("aotlens-heads", HeadsElement);
