// The element <aotlens-heads>, which has all parts but the ranking.

import { Heads, NOTHING } from "./chosen.js";
import { make } from "./drawing.js";
import { LargeMap } from "./large.js";
import { Maps, inflate, unpack } from "./maps.js";
import { Chips, Grid, Ranking, Strip } from "./parts.js";

// <aotlens-heads data-packed="…">, or `show(header, steps, visible)`. It says in its dataset what is shown, and tells of it
// by the event `heads`.
export class HeadsElement extends HTMLElement {
  static parts = { Heads, Maps, Chips, Strip, Grid, LargeMap, Ranking };

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
    heads.part(Grid, grid, { switches: false });
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
