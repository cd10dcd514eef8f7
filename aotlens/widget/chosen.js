// What is chosen, locked and pointed at: `Heads`, whose parts draw their share of it into an element that they are given.

import { Maps } from "./maps.js";
import { themeOfPage, whenThemeChanges } from "./drawing.js";

const RESTS = 150; // milliseconds after which somebody who points at a token wants its exact numbers
export const NOTHING = { position: null, cell: null, head: null };

// `maps` are the full model's and `without` those of a run without the heads that are `off`. A token is locked by its
// `position`, an entry by its `cell`, [query, key]. A choice of the reader's is an event `choose`, `lock` or `off`;
// `set` is for what somebody else has chosen. With `holds`, pointing does nothing while something is locked.
export class Heads extends EventTarget {
  constructor(values = {}) {
    super();
    Object.assign(this, {
      maps: null, without: null, head: [0, 0], position: null, cell: null, direction: "to", hidesFirst: false, off: [], motifs: null,
      rank: null, theme: themeOfPage(), pointed: NOTHING, holds: false, ask: null, asks: false, waits: false,
      parts: new Map(), frame: 0, rests: 0, wait: (then, time) => setTimeout(then, time), ...values,
    });
    whenThemeChanges((theme) => this.set({ theme }));
  }

  // A part in an element, which it keeps for as long as the element is in the document.
  part(Part, box, options) {
    if (box && !this.parts.has(box)) this.parts.set(box, new Part(box, this, options));
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
    if (this.ask && place !== NOTHING) this.rests = this.wait(() => this.exact(), RESTS);
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
