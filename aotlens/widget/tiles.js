// Maps of long prompts (long_maps.py), for the app: all heads by the largest entry of each block, and of the head
// that is shown large, finer blocks in tiles, which are asked for as they come in sight. A number is known once the token's
// row and column have been asked for.

import { HeadsElement } from "./element.js";
import { Maps, unpack } from "./maps.js";

const TILES_KEPT = 48; // of a quarter of a megabyte, and a canvas of one; of all texts together, the newest last
const tiles = new Map(); // by the maps' number, head, block, row and column
let made = 0;
const AT_ONCE = 4; // tiles that are asked for at the same time

class LongMaps extends Maps {
  constructor(header, rest, first) {
    super(header, null, null);
    Object.assign(this, { rest, first, side: Math.ceil(this.n / this.block), number: made++, flying: new Set(), wanted: null });
  }

  // Maps of whichever length, of the bytes of one answer.
  static of(bytes) {
    const { header, arrays } = unpack(bytes);
    return header.block ? new LongMaps(header, ...arrays) : new Maps(header, ...arrays);
  }

  sees(head, query, key) {
    return !this.causal || (key <= query && (!this.window || key > query - this.window));
  }

  // Of an entry nothing is known but the largest around it.
  value() {
    return NaN;
  }

  // Blocks as pixels: `rest` and `first` are steps of blocks from a row and a column on. With `factor`, a pixel is the
  // largest of so many blocks a side.
  blocks({ rest, first, rows, columns, row, column, block }, [layer, head], hidesFirst, theme, factor = 1) {
    const { n, causal, window } = this, width = Math.ceil(columns / factor), height = Math.ceil(rows / factor);
    const largest = this.largest(layer, head, hidesFirst), zero = this.signed ? 128 : 0;
    const shares = [this.top(layer, head, 0) / largest, this.top(layer, head, 1) / largest];
    const palettes = shares.map((share) => this.palette(theme, share));
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const data = new ImageData(width, height), pixels = new Uint32Array(data.data.buffer), sizes = new Float32Array(width * height).fill(-1);
    const put = (place, step, which) => {
      const size = Math.abs(step - zero) * shares[which];
      if (size <= sizes[place]) return;
      sizes[place] = size;
      pixels[place] = palettes[which][step];
    };
    for (let r = 0; r < rows; r++) {
      const query = (row + r) * block, last = Math.min(n, query + block) - 1, line = Math.floor(r / factor) * width;
      if (!column && !hidesFirst && (!causal || !window || query < window)) put(line, first[r], 0);
      const start = !column && block === 1 ? 1 : 0, seen = causal ? Math.floor(last / block) - column + 1 : columns;
      for (let c = start; c < Math.min(columns, seen); c++) {
        if (causal && window && (column + c + 1) * block <= query - window + 1) continue;
        put(line + Math.floor(c / factor), rest[r * columns + c], 1);
      }
    }
    canvas.getContext("2d").putImageData(data, 0, 0);
    return canvas;
  }

  // All of a head's map, a pixel a block of the grid, or of several.
  picture(layer, head, hidesFirst, theme, most = Infinity) {
    const { side, block, pictures } = this, factor = Math.max(1, Math.ceil(side / most)), name = [layer, head, hidesFirst, theme, factor].join();
    if (pictures.has(name)) return pictures.get(name);
    if (pictures.size > 3 * this.layers * this.heads) pictures.clear();
    const place = layer * this.heads + head, rest = this.rest.subarray(place * side * side, (place + 1) * side * side);
    const part = { rest, first: this.first.subarray(place * side, (place + 1) * side), rows: side, columns: side, row: 0, column: 0, block };
    pictures.set(name, this.blocks(part, [layer, head], hidesFirst, theme, factor));
    return pictures.get(name);
  }

  // What is in sight of a head's map, [first query, first key, span], `side` wide: the grid's blocks, and over them the tiles
  // that are there, of blocks no smaller than a pixel, so that each is seen. The others are asked for once the frame is drawn.
  view({ head, hidesFirst, theme }, [query, key, span], side) {
    const width = Math.max(1, Math.round(side * (window.devicePixelRatio || 1))), unit = width / span;
    const canvas = (this.sight ??= document.createElement("canvas"));
    Object.assign(canvas, { width, height: width });
    const pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = false;
    const draw = (picture, firstQuery, firstKey, block) =>
      pen.drawImage(picture, (firstKey - key) * unit, (firstQuery - query) * unit, picture.width * block * unit, picture.height * block * unit);
    draw(this.picture(...head, hidesFirst, theme), 0, 0, this.block);
    const block = 2 ** Math.max(0, Math.ceil(Math.log2(span / width))), across = this.tile * block;
    this.wanted = [];
    if (1.5 * block > this.block) return canvas; // the grid's are as fine
    for (let row = Math.floor(query / across); row * across < Math.min(this.n, query + span); row++)
      for (let column = Math.floor(key / across); column * across < Math.min(this.n, key + span); column++) {
        if (this.causal && column > row) continue;
        const name = [this.number, ...head, block, row, column].join(), tile = tiles.get(name);
        if (!tiles.has(name)) this.wanted.push({ name, head, block, row, column });
        if (!tile) continue;
        tiles.delete(name);
        tiles.set(name, tile);
        const [firstQuery, firstKey] = [row * across, column * across], look = [hidesFirst, theme].join();
        if (tile.look !== look) Object.assign(tile, { look, picture: this.blocks(tile, head, hidesFirst, theme) });
        pen.clearRect((firstKey - key) * unit, (firstQuery - query) * unit, tile.columns * block * unit, tile.rows * block * unit);
        draw(tile.picture, firstQuery, firstKey, block);
      }
    return canvas;
  }

  // Asks for what is in sight and not there: some tiles at a time, and the numbers of a token that is locked.
  drawn(heads) {
    for (const tile of this.wanted ?? []) if (this.flying.size < AT_ONCE && !this.flying.has(tile.name)) this.fetch(tile, heads);
    const { position, cell, head, pointed, asks } = heads, points = Object.values(pointed).some((place) => place !== null);
    const asked = String([head, position, cell]);
    if (this !== heads.maps || !heads.ask || asks || points || position === null || asked === this.asked) return;
    this.asked = asked; // once, though there be no answer
    heads.exact();
  }

  async fetch({ name, head, block, row, column }, heads) {
    this.flying.add(name);
    const bytes = await this.askTile?.(head, block, row, column).catch(() => null), { header, arrays } = bytes ? unpack(bytes) : {};
    this.flying.delete(name);
    const [rest, first] = arrays ?? [];
    tiles.set(name, header ? { ...header, rest, first, row: row * this.tile, column: column * this.tile, block } : null);
    if (tiles.size > TILES_KEPT) tiles.delete(tiles.keys().next().value);
    heads.later();
  }
}

HeadsElement.parts.LongMaps = LongMaps;
