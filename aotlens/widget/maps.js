// The packed arrays of one prompt (packed.py, maps.py), and all heads' maps in them. This and its neighbours are ES modules,
// which packed.py joins to one file (`module`): an import is one line, and no two files have the same name for two things.

export async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// What `pack` of packed.py packed: {header, arrays}, every array a Uint8Array.
export function unpack(bytes) {
  let place = 4 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, place)));
  return { header, arrays: header.arrays.map((length) => bytes.subarray(place, (place += length))) };
}

// The numbers of one prompt: `HeadMaps` of maps.py. Attention to position 0 has a scale of its own. With `finer` an entry is
// known to half a 254th of a step.
export class Maps {
  constructor(header, steps, visible, finer = null) {
    Object.assign(this, { ...header, n: header.positions, steps, visible, finer, lines: new Map(), pictures: new Map(), margins: {}, colours: {} });
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

  // Colours of 256 steps of a scale, as the bytes of a pixel; with `share`, of steps of a part of it.
  palette(theme, share = 1) {
    const zero = this.signed ? 128 : 0, all = (this.colours[theme] ??= this.scale(theme));
    return all.map((_, step) => all[Math.round(zero + (step - zero) * share)]);
  }

  scale(theme) {
    const rgb = this.themes[theme].stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
    return Uint32Array.from({ length: 256 }, (_, step) => {
      const place = (this.signed ? Math.max(0, step - 1) / 254 : step / 255) * (rgb.length - 1);
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
    const { n, steps, visible } = this, start = (layer * this.heads + head) * n * n, mask = this.masks > 1 ? head * n * n : 0;
    const largest = this.largest(layer, head, hidesFirst), zero = this.signed ? 128 : 0;
    const first = this.top(layer, head, 0) / largest, rest = this.top(layer, head, 1) / largest;
    const palettes = [this.palette(theme, first), this.palette(theme, rest)];
    const canvas = Object.assign(document.createElement("canvas"), { width: side, height: side });
    const data = new ImageData(side, side), pixels = new Uint32Array(data.data.buffer);
    const sizes = block > 1 ? new Float32Array(side * side).fill(-1) : null; // an entry alone is the largest
    for (let query = 0; query < n; query++) {
      const line = Math.floor(query / block) * side;
      for (let key = hidesFirst ? 1 : 0; key < n; key++) {
        if (visible[mask + query * n + key] !== 1) continue;
        const step = steps[start + query * n + key], place = line + (sizes ? Math.floor(key / block) : key);
        if (sizes) {
          const size = Math.abs(step - zero) * (key ? rest : first);
          if (size <= sizes[place]) continue;
          sizes[place] = size;
        }
        pixels[place] = palettes[key ? 1 : 0][step];
      }
    }
    canvas.getContext("2d").putImageData(data, 0, 0);
    this.pictures.set(name, canvas);
    return canvas;
  }
}
