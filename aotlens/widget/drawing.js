// How a page looks, light or dark; pens, one drawing for the screen, PNG and SVG; and what all parts make elements with.

// As a site's own switch (data-theme), the app, Jupyter or VS Code says of itself, or else as the browser's user prefers.
export function themeOfPage() {
  const { theme, mantineColorScheme } = document.documentElement.dataset, said = theme ?? mantineColorScheme;
  if (said === "light" || said === "dark") return said;
  const { jpThemeLight, vscodeThemeKind } = document.body?.dataset ?? {};
  if (jpThemeLight !== undefined) return jpThemeLight === "false" ? "dark" : "light";
  if (vscodeThemeKind !== undefined) return vscodeThemeKind.includes("dark") ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

// Calls back with the theme whenever it changes; what it returns ends that.
export function whenThemeChanges(callback) {
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

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

export class CanvasPen {
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

  image(canvas, [left, top, wide, high = wide], x, y, width, height = width) {
    this.pen.drawImage(canvas, left, top, wide, high, x, y, width, height);
  }
}

export class SvgPen {
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

  image(canvas, [left, top, wide, high = wide], x, y, width, height = width) {
    const inner = `<image href="${canvas.toDataURL()}" width="${canvas.width}" height="${canvas.height}" style="image-rendering: pixelated"/>`;
    const size = `width="${width}" height="${height}" viewBox="${left} ${top} ${wide} ${high}" preserveAspectRatio="none"`;
    this.parts.push(`<svg x="${x}" y="${y}" ${size}>${inner}</svg>`);
  }

  toString() {
    const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${this.parts.join("")}</svg>`;
  }
}

export const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
export const within = (value, size) => Math.max(0, Math.min(size - 1, value));
export const same = (one, other) => String(one) === String(other);

export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// Whether an element is to look otherwise than when it was drawn last: a choice leaves most elements as they are.
const looks = new WeakMap();
export function differs(element, ...look) {
  const text = String(look), known = looks.get(element) === text;
  looks.set(element, text);
  return !known;
}

// Ticks of a colour bar: numbers at round distances, some seven between both ends.
export function ticks(least, most) {
  const raw = (most - least) / 6, power = 10 ** Math.floor(Math.log10(raw));
  const gap = power * [1, 2, 5, 10].find((factor) => factor * power >= raw), first = Math.ceil(least / gap);
  return Array.from({ length: Math.floor((most * 1.0001) / gap) - first + 1 }, (_, tick) => Number(((first + tick) * gap).toPrecision(6)));
}

// A colour bar with its ticks and title; `colour` gives that of a share of the way up.
export function drawBar(pen, x, y, height, [least, most], colour, title, css) {
  const steps = 64;
  for (let step = 0; step < steps; step++)
    pen.rect(x, y + height * (1 - (step + 1) / steps), 10, height / steps + 0.5, { fill: colour(step / (steps - 1)) });
  pen.rect(x, y, 10, height, { stroke: css.line });
  for (const tick of ticks(least, most)) pen.text(String(tick), x + 14, y + height * (1 - (tick - least) / (most - least)), { size: 10, fill: css.ink });
  pen.text(title, x + 46, y + height / 2, { fill: css.quiet, align: "center", turned: true });
}

// A tip beside the pointer, [x, y]: names and texts, and a number below them.
export function showTip(tip, [x, y], lines, number) {
  tip.replaceChildren(...lines.flatMap((line) => [line, make("br")]), make("b", { textContent: number }));
  const right = x + 14 + tip.offsetWidth > innerWidth;
  Object.assign(tip.style, { left: `${right ? x - 14 - tip.offsetWidth : x + 14}px`, top: `${y + 14}px` });
}

// A picture drawn anew for a file, `paint(pen)`, as its content.
export async function pictureOf(format, width, height, surface, paint) {
  const canvas = make("canvas"), pen = format === "svg" ? new SvgPen(width, height) : new CanvasPen(canvas, width, height, 2);
  pen.rect(0, 0, width, height, { fill: surface });
  paint(pen);
  return format === "svg" ? new Blob([String(pen)], { type: "image/svg+xml" }) : new Promise((done) => canvas.toBlob(done));
}

export const LABEL = 12; // pixels that a label takes, across
export function widest(names) {
  const pen = make("canvas").getContext("2d");
  pen.font = `11px ${FONT}`;
  return Math.max(...names.map((name) => pen.measureText(name).width));
}
