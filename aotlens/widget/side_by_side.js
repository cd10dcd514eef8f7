// Two runs side by side, and their difference, for the app.

import { Heads } from "./chosen.js";
import { make, same } from "./drawing.js";
import { HeadsElement } from "./element.js";
import { Maps } from "./maps.js";

// A head of the right run less one of the left run, at the positions of the left text: `places` are pairs [left, right] of
// positions that correspond. Colours and numbers are as of one head, 0.0; `largestEntry` is [value, query, key].
function differenceOf(left, head, right, other, places) {
  const { n } = left, values = new Float32Array(n * n), visible = new Uint8Array(n * n), tops = [0, 0];
  let largest = [0, 0, 0];
  for (const [query, otherQuery] of places)
    for (const [key, otherKey] of places) {
      if (!left.sees(head[1], query, key) || !right.sees(other[1], otherQuery, otherKey)) continue;
      const value = right.value(...other, otherQuery, otherKey) - left.value(...head, query, key), rest = key ? 1 : 0;
      values[query * n + key] = value;
      visible[query * n + key] = 1;
      tops[rest] = Math.max(tops[rest], Math.abs(value));
      if (Math.abs(value) > Math.abs(largest[0])) largest = [value, query, key];
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
  return Object.assign(maps, { largestEntry: largest });
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

Object.assign(HeadsElement.parts, { SideBySide, PairGrid });
