// Maps of patches over images, for the app (patches.py).

import { Heads } from "./chosen.js";
import { STEPS, make, pictureOf, same, within } from "./drawing.js";
import { HeadsElement } from "./element.js";
import { Maps, unpack } from "./maps.js";

// The attention of all heads to the patches of some images: `PatchMaps` of patches.py. Every map has a scale of its own.
class PatchMaps extends Maps {
  static of(bytes) {
    const { header, arrays } = unpack(bytes), floats = (part) => part && new Float32Array(part.slice().buffer);
    const [pixels, steps, tops, norms, rolled, rolledTops] = arrays;
    return Object.assign(new PatchMaps(header, steps), { pixels, mapTops: floats(tops), norms: floats(norms), rolled, rolledTops: floats(rolledTops) });
  }

  // The place of a query's maps, null being the model's own query; -1 where they are not here.
  at(query) {
    if (this.only) return this.only.findIndex((each) => same(each, query));
    return query ? 1 + query[0] * this.columns + query[1] : 0;
  }

  decoded(steps, tops, place, signed) {
    const top = tops[place], { n } = this;
    return Array.from(steps.subarray(place * n, (place + 1) * n), (step) => (signed ? ((step - 128) / 127) * top : (step / 255) * top));
  }

  // The numbers of a map's patches; null where it is not here.
  attention([layer, head], image, query, weighted) {
    const map = (image * this.layers + layer) * this.heads + head, at = this.at(query), nQueries = this.only?.length ?? this.n + 1;
    if (at < 0) return null;
    const values = this.decoded(this.steps, this.mapTops, map * nQueries + at, this.signed);
    return weighted ? values.map((value, patch) => value * this.norms[map * this.n + patch]) : values;
  }

  queryName(query) {
    return query ? `patch (${query.join(", ")})` : this.query;
  }

  rollout(image, query) {
    const at = this.at(query), nQueries = this.only?.length ?? this.n + 1;
    return this.rolled && at >= 0 ? this.decoded(this.rolled, this.rolledTops, image * nQueries + at, false) : null;
  }

  // A canvas of an image; `under` a map in middle greys, so that colours are seen on its white and on its black parts.
  photo(image, under) {
    const name = `${image} ${under}`, [height, width] = this.size, area = width * height;
    if (this.pictures.has(name)) return this.pictures.get(name);
    const canvas = Object.assign(make("canvas"), { width, height }), data = new ImageData(width, height);
    for (let pixel = 0; pixel < area; pixel++) {
      let rgb = [0, 1, 2].map((channel) => this.pixels[(image * this.channels + Math.min(channel, this.channels - 1)) * area + pixel]);
      if (under) rgb = Array(3).fill(96 + (140 / 255) * (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]));
      data.data.set([...rgb, 255], 4 * pixel);
    }
    canvas.getContext("2d").putImageData(data, 0, 0);
    this.pictures.set(name, canvas);
    return canvas;
  }

  // The image and a map over it as a stack of elements; `cover` draws another map there.
  stack(image, under) {
    const { width, height } = this.photo(image, under);
    return make("div", { className: "photo" }, Object.assign(make("canvas"), { width, height }), make("canvas", { className: "cover" }));
  }
}

// Draws numbers of patches over an image, the more cover the larger: blue above 0, orange below.
function cover(maps, canvas, values) {
  const top = Math.max(...values.map(Math.abs)) || 1, data = new ImageData(maps.columns, maps.rows);
  values.forEach((value, patch) => data.data.set([...(value < 0 ? [214, 84, 0] : [0, 92, 170]), (229.5 * Math.abs(value)) / top], 4 * patch));
  Object.assign(canvas, { width: maps.columns, height: maps.rows }).getContext("2d").putImageData(data, 0, 0);
  return canvas;
}

function show(maps, stack, image, values) {
  const [photo, over] = stack.children, under = Boolean(values), name = `${image} ${under}`;
  if (stack.maps !== maps || stack.dataset.shown !== name) photo.getContext("2d").drawImage(maps.photo(image, under), 0, 0);
  Object.assign(stack, { maps }).dataset.shown = name;
  over.hidden = !values;
  if (values) cover(maps, over, values);
}

// What is chosen of images: one of them, and whose attention is shown: the locked `query`, or a patch that is pointed at.
class ImageHeads extends Heads {
  constructor(values = {}) {
    super({ image: 0, query: null, hovered: null, weighted: false, ranking: null, added: null, ...values });
  }

  get shownQuery() {
    return this.hovered && this.maps.at(this.hovered) >= 0 ? this.hovered : this.query;
  }

  // The heads of the layer in their order; a ranking may be of another model, until the next one is there.
  get rows() {
    const [layer] = this.head, ranked = this.ranking?.filter(([of]) => of === layer).map(([, head]) => head);
    return ranked?.length === this.maps.heads ? ranked : Array.from({ length: this.maps.heads }, (_, head) => head);
  }

  pick(image, [layer, head] = this.head) {
    this.image = image;
    this.choose(layer, head);
  }

  lockQuery(query) {
    Object.assign(this, { query: same(query, this.query) ? null : query, hovered: null });
    this.tell("query");
  }

  draw() {
    const { maps, query } = this;
    if (maps) this.image = within(this.image, maps.images);
    if (maps && query && (query[0] >= maps.rows || query[1] >= maps.columns)) this.query = null;
    super.draw();
  }
}

const arrow = (event) => STEPS[event.key] ?? null;

function focusOn(event, element) {
  event.preventDefault();
  element?.focus();
}

// The images, each above what the model predicts for it.
class Gallery {
  constructor(box, heads) {
    Object.assign(this, { box, heads });
    const imageOf = ({ target }) => target.closest?.(".gallery-image");
    box.addEventListener("click", (event) => imageOf(event) && heads.pick(Number(imageOf(event).dataset.image)));
    box.addEventListener("keydown", (event) => {
      const step = arrow(event), to = step && imageOf(event) && box.children[Number(imageOf(event).dataset.image) + step[0] + step[1]];
      if (step) focusOn(event, to);
      if (to) heads.pick(Number(to.dataset.image));
    });
  }

  draw() {
    const { box, heads } = this, { maps } = heads;
    if (this.maps !== maps) {
      box.replaceChildren(...(maps?.says ?? []).map(({ text, title, wrong }, image) => {
        const said = make("span", { className: "gallery-says", textContent: text });
        const button = make("button", { type: "button", className: "gallery-image", title }, make("canvas"), said);
        button.setAttribute("aria-label", `Image ${image + 1}: ${text.replace("\n", " ")}`);
        button.classList.toggle("gallery-wrong", wrong);
        button.dataset.image = image;
        const photo = maps.photo(image, false), canvas = button.firstChild;
        Object.assign(canvas, { width: photo.width, height: photo.height }).getContext("2d").drawImage(photo, 0, 0);
        return button;
      }));
      this.maps = maps;
    }
    for (const button of box.children) {
      const here = Number(button.dataset.image) === heads.image;
      button.setAttribute("aria-pressed", String(here));
      button.tabIndex = here ? 0 : -1;
    }
  }
}

// A row for each head of the layer, with its name and what ablates it, and a map of each image.
class PatchGrid {
  constructor(box, heads) {
    Object.assign(this, { box, heads, rows: [] });
    box.map = this;
    const placeOf = (element) => [Number(element.dataset.row), Number(element.dataset.image)];
    const headAt = (row) => [heads.head[0], heads.rows[row]];
    box.addEventListener("click", ({ target }) => {
      const cell = target.closest(".map-cell"), toggle = target.closest(".head-switch");
      if (toggle) heads.toggle(...headAt(placeOf(toggle)[0]));
      else if (cell) heads.pick(placeOf(cell)[1], headAt(placeOf(cell)[0]));
    });
    box.addEventListener("keydown", (event) => {
      const step = arrow(event), element = event.target.closest(".map-cell, .head-switch"), [row, image] = element ? placeOf(element) : [];
      if (element && event.key === "x") heads.toggle(...headAt(row));
      if (!step || !element) return;
      const next = this.rows[row + step[0]], to = element.matches(".head-switch") ? next?.toggle : next?.cells[image + step[1]];
      focusOn(event, to);
      if (to?.matches(".map-cell")) heads.pick(image + step[1], headAt(row + step[0]));
    });
  }

  fill(maps) {
    this.rows = Array.from({ length: maps.heads }, (_, row) => {
      const name = make("span", { className: "row-name" }), toggle = make("button", { type: "button", className: "head-switch" });
      const cells = Array.from({ length: maps.images }, (_, image) => {
        const cell = make("button", { type: "button", className: "map-cell" }, maps.stack(image, true));
        Object.assign(cell.dataset, { row, image });
        return cell;
      });
      toggle.dataset.row = row;
      return { name, toggle, cells };
    });
    this.box.replaceChildren(...this.rows.flatMap(({ name, toggle, cells }) => [name, toggle, ...cells]));
  }

  draw() {
    const { heads, box } = this, { maps } = heads;
    if (!maps) return box.replaceChildren((this.rows = [], ""));
    if (this.maps !== maps && (this.rows.length !== maps.heads || this.rows[0].cells.length !== maps.images || !same(this.maps.size, maps.size))) this.fill(maps);
    const [layer] = heads.head, order = heads.rows, look = [layer, order, heads.weighted, heads.shownQuery].join();
    const paints = this.maps !== maps || this.look !== look;
    Object.assign(this, { maps, look });
    this.rows.forEach(({ name, toggle, cells }, row) => {
      const head = order[row], of = `${layer}.${head}`, here = head === heads.head[1], off = heads.off.some((each) => same(each, [layer, head]));
      name.textContent = of;
      name.classList.toggle("row-here", here);
      toggle.setAttribute("aria-label", `Ablate head ${of}`);
      toggle.setAttribute("aria-pressed", String(off));
      toggle.tabIndex = row ? -1 : 0;
      cells.forEach((cell, image) => {
        const chosen = here && image === heads.image;
        cell.classList.toggle("map-here", chosen);
        cell.classList.toggle("map-off", off);
        cell.tabIndex = chosen ? 0 : -1;
        if (!paints) return;
        Object.assign(cell.dataset, { layer, head });
        cell.setAttribute("aria-label", `Head ${of}, image ${image + 1}`);
        show(maps, cell.firstChild, image, maps.attention([layer, head], image, heads.shownQuery, heads.weighted));
      });
    });
  }

  // The picture as a file, in a size of its own.
  async file(format) {
    const { heads, box } = this, { maps } = heads, [layer] = heads.head, side = 84, look = getComputedStyle(box);
    const [width, height] = [46 + maps.images * (side + 2), 34 + maps.heads * (side + 2)], ink = look.getPropertyValue("--ink");
    const name = [maps.name, `layer ${layer}`, heads.weighted ? "value-weighted" : "attention"].join(" · ");
    const content = await pictureOf(format, width, height, look.getPropertyValue("--surface"), (pen) => {
      pen.text(`${name} · query: ${maps.queryName(heads.query)}`, 8, 16, { fill: ink, size: 13 });
      heads.rows.forEach((head, row) => {
        pen.text(`${layer}.${head}`, 8, 30 + (row + 0.5) * (side + 2), { fill: ink });
        for (let image = 0; image < maps.images; image++) {
          const values = maps.attention([layer, head], image, heads.query, heads.weighted);
          drawOver(pen, maps, image, values, 40 + image * (side + 2), 30 + row * (side + 2), side);
        }
      });
    });
    return { name, content };
  }
}

// An image in a picture for a file, and numbers of its patches over it.
function drawOver(pen, maps, image, values, ...place) {
  pen.image(maps.photo(image, true), [0, 0, maps.size[0]], ...place);
  if (values) pen.image(cover(maps, make("canvas"), values), [0, 0, maps.columns], ...place);
}

// One image: its patches, of which one may be the query, and the maps of one head beside it; below, the numbers of the
// patch that is pointed at.
class ImageMaps {
  constructor(box, heads) {
    Object.assign(this, { box, heads, patch: null });
    const patchOf = ({ target }) => target.closest?.(".patch"), queryOf = ({ dataset }) => [Number(dataset.row), Number(dataset.column)];
    const hover = (event) => heads.set({ hovered: patchOf(event) ? queryOf(patchOf(event)) : null });
    box.addEventListener("pointerover", hover);
    box.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && hover(event));
    for (const left of ["pointerleave", "focusout"]) box.addEventListener(left, () => {
      this.patch = null;
      heads.set({ hovered: null });
      heads.later();
    });
    box.addEventListener("click", (event) => patchOf(event) && heads.lockQuery(queryOf(patchOf(event))));
    box.addEventListener("pointermove", ({ target, offsetX, offsetY }) => {
      if (!target.matches(".cover")) return;
      this.patch = [within(Math.floor((offsetY / target.clientHeight) * heads.maps.rows), heads.maps.rows), within(Math.floor((offsetX / target.clientWidth) * heads.maps.columns), heads.maps.columns)];
      this.tell();
    });
    box.addEventListener("keydown", (event) => {
      const step = arrow(event), patch = patchOf(event);
      if (patch && event.key === "Escape" && heads.query) heads.lockQuery(heads.query);
      if (!patch || !step) return;
      const [row, column] = queryOf(patch).map((place, axis) => place + step[axis]), { rows, columns } = heads.maps;
      focusOn(event, row >= 0 && column >= 0 && row < rows && column < columns ? this.patches[row * columns + column] : null);
    });
  }

  fill(maps) {
    this.patches = Array.from({ length: maps.n }, (_, place) => {
      const [row, column] = [Math.floor(place / maps.columns), place % maps.columns], patch = make("button", { type: "button", className: "patch" });
      patch.setAttribute("aria-label", `Patch ${row}.${column}`);
      Object.assign(patch.dataset, { row, column });
      return patch;
    });
    const patches = make("div", { className: "patches" }, ...this.patches);
    patches.style.setProperty("--patches", maps.columns);
    this.views = ["image", "attention", "weighted", "rollout", "added"].map((name) => {
      const stack = maps.stack(0, name !== "image"), caption = make("figcaption"), instead = make("p", { hidden: true });
      const figure = make("figure", {}, make("div", { className: "one-map" }, stack, instead), caption);
      if (name === "image") stack.append(patches);
      else stack.setAttribute("role", "img");
      return { name, stack, caption, instead, figure };
    });
    this.said = make("p", { className: "said" });
    this.said.setAttribute("aria-live", "polite");
    this.box.replaceChildren(...this.views.map(({ figure }) => figure), this.said);
  }

  // Each view's label and its numbers, or a sentence in their place.
  get shown() {
    const { maps, head, image, shownQuery: query, added } = this.heads, name = head.join("."), own = added?.image === image ? added : null;
    const rolled = maps.rollout(image, query), missing = maps.rolled ? "" : "Rollout needs attention that is nowhere negative: this model's is linear in its scores.";
    return {
      image: ["Point at a patch for its attention; a click keeps it as the query", null, ""],
      attention: [`Attention of ${name}`, maps.attention(head, image, query, false), ""],
      weighted: [`Value-weighted, ${name}`, maps.attention(head, image, query, true), ""],
      rollout: ["Rollout through all layers", rolled, missing],
      added: [own?.name ? `What patches add to ‹${own.name}›` : "Patch by patch", own?.patches ?? null, own?.says ?? ""],
    };
  }

  draw() {
    const { heads, box } = this, { maps } = heads;
    if (!maps) return box.replaceChildren((this.maps = null, ""));
    if (!this.maps || this.maps.n !== maps.n || !same(this.maps.size, maps.size)) this.fill(maps);
    this.maps = maps;
    for (const { name, stack, caption, instead } of this.views) {
      const [label, values, sentence] = this.shown[name];
      if (caption.textContent !== label) caption.textContent = label;
      if (name !== "image") stack.setAttribute("aria-label", label);
      Object.assign(instead, { textContent: sentence, hidden: !sentence });
      stack.hidden = Boolean(sentence);
      show(maps, stack, heads.image, values);
    }
    this.patches.forEach((patch, place) => {
      const here = [Math.floor(place / maps.columns), place % maps.columns], locked = same(here, heads.query);
      patch.setAttribute("aria-pressed", String(locked));
      patch.tabIndex = locked || (!heads.query && !place) ? 0 : -1;
    });
    Object.assign(box.dataset, { head: heads.head.join("."), image: heads.image, query: heads.shownQuery ?? "" });
    this.tell();
  }

  tell() {
    const { heads, patch } = this, { maps } = heads, place = patch && patch[0] * maps.columns + patch[1], { shown } = this;
    const numbers = Object.values(shown).filter(([, values]) => values).map(([label, values]) => `${label} ${values[place]?.toFixed(4)}`);
    const query = `Query: ${maps.queryName(heads.shownQuery)}${heads.query && !heads.hovered ? " · locked; Escape lets go" : ""}. `;
    const sentence = query + (patch ? `Patch (${patch.join(", ")}): ${numbers.join(", ")}.` : "Point at a map for the numbers of a patch.");
    if (this.said.textContent !== sentence) this.said.textContent = sentence;
  }
}

// One map of one image, large: what patches add to a class.
class SignedMap {
  constructor(box, heads) {
    Object.assign(this, { box, heads });
    box.map = this;
  }

  draw() {
    const { box, heads } = this, { maps, added } = heads, image = added?.image;
    box.hidden = !maps || !added?.patches || image >= maps.images;
    if (box.hidden) return;
    if (!same(this.size, maps.size)) box.replaceChildren((this.stack = maps.stack(image, true)));
    this.size = maps.size;
    this.stack.setAttribute("role", "img");
    this.stack.setAttribute("aria-label", `What each patch of image ${image + 1} adds to ${added.name}`);
    show(maps, this.stack, image, added.patches);
  }

  async file(format) {
    const { maps, added } = this.heads, side = 392, name = `${maps.name} · what patches add to ${added.name}`;
    return { name, content: await pictureOf(format, side, side, "none", (pen) => drawOver(pen, maps, added.image, added.patches, 0, 0, side)) };
  }
}

Object.assign(HeadsElement.parts, { ImageHeads, PatchMaps, Gallery, PatchGrid, ImageMaps, SignedMap });
