// The tokens, the tiles of all heads and their ranking.

import { STEPS, differs, make, same, within } from "./drawing.js";

// Tokens that somebody else has drawn and shaded: pointing at one and locking it are one with the maps. Arrow keys move.
export class Chips {
  constructor(box, heads) {
    Object.assign(this, { box, heads });
    const chipOf = ({ target }) => target.closest?.(".chip");
    const point = (event) => chipOf(event) && heads.point({ position: Number(chipOf(event).dataset.position) });
    box.addEventListener("pointerover", point);
    box.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && point(event));
    for (const left of ["pointerleave", "focusout"]) box.addEventListener(left, () => heads.point());
    box.addEventListener("click", (event) => chipOf(event) && heads.lock(Number(chipOf(event).dataset.position)));
    box.addEventListener("keydown", (event) => {
      const { chips } = this, here = chips.indexOf(chipOf(event)), last = chips.length - 1;
      const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") heads.release();
      if (here < 0 || !chips[to]) return;
      event.preventDefault();
      chips.forEach((chip, position) => (chip.tabIndex = position === to ? 0 : -1));
      chips[to].focus();
    });
  }

  get chips() {
    return [...this.box.querySelectorAll(".chip")];
  }

  draw() {
    for (const chip of this.chips) this.mark(chip, Number(chip.dataset.position));
  }

  // Marks what is pointed at and locked; `look` is what else a chip shows. Returns whether any of it is news.
  mark(chip, position, ...look) {
    const { shownPosition, position: locked, shownCell, direction } = this.heads;
    const isHere = position === shownPosition, isLocked = position === locked, isKey = shownCell?.[direction === "to" ? 1 : 0] === position;
    if (!differs(chip, isHere, isLocked, isKey, ...look)) return false;
    for (const [name, on] of [["chip-here", isHere], ["chip-locked", isLocked], ["chip-key", isKey]]) chip.classList.toggle(name, on);
    chip.setAttribute("aria-pressed", String(isLocked));
    return true;
  }
}

// The tokens, or patches over their picture: shaded by the shown token's row or column; a click locks one.
export class Strip extends Chips {
  tokens = [];

  get chips() {
    return this.tokens;
  }

  fill() {
    const { maps } = this.heads, { strip } = maps ?? {};
    this.maps = maps;
    this.tokens = (maps?.tokens ?? []).map((text, position) => {
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
      const heat = `${(100 * Math.abs(share)).toFixed(0)}%`;
      const text = Math.abs(share) < 0.04 ? "" : value.toFixed(Math.min(2, maps.decimals(layer, head, other))).replace(/^(-?)0\./, "$1.");
      if (!this.mark(chip, position, heat, text, share < 0)) return;
      chip.style.setProperty("--heat", heat);
      chip.classList.toggle("chip-negative", share < 0);
      if (text) chip.dataset.value = text;
      else delete chip.dataset.value;
    });
  }
}

// A tile a head: its map with nothing over it, its name and what it is known for beside it, and a corner that switches it
// off. Of the run without the heads that are off, where there is one.
export class Grid {
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

export class Ranking {
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
