// The maps of all heads on one prompt, linked: the entry that is pointed at, in the text, in the grid or in the large
// map, is marked in all three. A click holds it, the next one or Escape lets go. Nothing is asked of a server.

function drawHeadMaps(host, css, maps, steps, visible, theme) {
  const { layers, heads, positions: n } = maps;
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  host.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take arrow keys and Escape for its own
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const state = { layer: maps.head[0], head: maps.head[1], query: null, key: null, held: false, over: null, hidesFirst: false };
  let colours, pictures, cell, side, margin;

  const tokens = maps.tokens.map((text, position) => {
    const button = make("button", { type: "button", className: "token", title: `${text}  (${position})` });
    button.textContent = maps.strip && position >= maps.strip.n_before ? "" : text;
    button.setAttribute("aria-label", `${text}, position ${position}`);
    button.dataset.position = position;
    return button;
  });
  const strip = make("div", { className: "strip" });
  const before = make("div", { className: "before" });
  if (maps.strip) {
    strip.classList.add("picture");
    strip.style.gridTemplateColumns = `repeat(${maps.strip.columns}, 26px)`;
    strip.style.backgroundImage = `url(${maps.strip.picture})`;
    before.append(...tokens.slice(0, maps.strip.n_before));
    strip.append(...tokens.slice(maps.strip.n_before));
  } else strip.append(...tokens);
  const text = make("div", { className: "text" }, before, strip);
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", "The text, token by token");
  const said = make("p", { className: "said" });
  said.setAttribute("aria-live", "polite");
  const first = make("input", { type: "checkbox" });
  const choice = make("label", { className: "choice" }, first, ` Leave out ${maps.tokens[0]} (0), which may drown the rest`);
  const canvas = (className, label) => {
    const element = make("canvas", { className, tabIndex: 0 });
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", label);
    return element;
  };
  const grid = canvas("grid", "All heads: layers down, heads across. Arrow keys choose a head.");
  const map = canvas("map", "One head: queries down, keys across. Arrow keys move, Enter holds, Escape lets go.");
  const title = make("figcaption");
  const all = make("figcaption", { textContent: "All heads: layer down, head across" });
  const gridBox = make("figure", {}, all, make("div", { className: "scroll" }, grid));
  const mapBox = make("figure", {}, title, make("div", { className: "scroll" }, map));
  root.replaceChildren(make("style", { textContent: css }), text, said, choice, make("div", { className: "both" }, gridBox, mapBox));

  const at = (layer, head, query, key) => ((layer * heads + head) * n + query) * n + key;
  const sees = (head, query, key) => !(state.hidesFirst && key === 0) && visible[((maps.masks > 1 ? head : 0) * n + query) * n + key] === 1;
  const valueOf = (layer, head, query, key) => {
    const step = steps[at(layer, head, query, key)], top = maps.tops[layer * heads + head];
    return maps.signed ? ((step - 128) / 127) * top : (step / 255) * top;
  };
  const name = (position) => `${maps.tokens[position]} (${position})`;

  function paintPictures() {
    const rgb = colours.stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
    const zero = maps.signed ? 128 : 0, most = maps.signed ? 127 : 255;
    const table = Array.from({ length: 256 }, (_, step) => {
      const part = maps.signed ? Math.max(0, step - 1) / 254 : step / 255;
      const place = part * (rgb.length - 1), low = Math.min(Math.floor(place), rgb.length - 2);
      return rgb[low].map((from, i) => from + (rgb[low + 1][i] - from) * (place - low));
    });
    pictures = [];
    for (let layer = 0; layer < layers; layer++)
      for (let head = 0; head < heads; head++) {
        const picture = make("canvas", { width: n, height: n }), pixels = new ImageData(n, n);
        let largest = state.hidesFirst ? 0 : most; // of the entries that are shown, in steps
        for (let place = 0; state.hidesFirst && place < n * n; place++)
          if (place % n) largest = Math.max(largest, Math.abs(steps[at(layer, head, 0, place)] - zero));
        for (let query = 0; query < n; query++)
          for (let key = 0; key < n; key++) {
            const place = 4 * (query * n + key);
            const step = zero + ((steps[at(layer, head, query, key)] - zero) * most) / (largest || most);
            pixels.data.set(table[Math.max(0, Math.min(255, Math.round(step)))], place);
            pixels.data[place + 3] = sees(head, query, key) ? 255 : 0;
          }
        picture.getContext("2d").putImageData(pixels, 0, 0);
        pictures.push(picture);
      }
  }

  function context(element, width, height) {
    const ratio = window.devicePixelRatio || 1;
    Object.assign(element, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    Object.assign(element.style, { width: `${width}px`, height: `${height}px` });
    const pen = element.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.imageSmoothingEnabled = false;
    return pen;
  }

  const LEFT = 24, TOP = 16, GAP = 4;
  function paintGrid() {
    const pen = context(grid, LEFT + heads * (cell + GAP), TOP + layers * (cell + GAP));
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colours.quietInk;
    for (let head = 0; head < heads; head++) pen.fillText(head, LEFT + head * (cell + GAP) + cell / 2 - 3, 11);
    for (let layer = 0; layer < layers; layer++) {
      const y = TOP + layer * (cell + GAP);
      pen.fillStyle = colours.quietInk;
      pen.fillText(layer, 4, y + cell / 2 + 4);
      for (let head = 0; head < heads; head++) {
        const x = LEFT + head * (cell + GAP), chosen = layer === state.layer && head === state.head;
        pen.drawImage(pictures[layer * heads + head], x, y, cell, cell);
        pen.strokeStyle = chosen ? colours.mark : colours.quiet;
        pen.lineWidth = chosen ? 2 : 1;
        pen.strokeRect(x - 0.5, y - 0.5, cell + 1, cell + 1);
        cross(pen, x, y, cell);
      }
    }
  }

  function cross(pen, x, y, size) {
    const unit = size / n;
    pen.fillStyle = colours.mark;
    pen.globalAlpha = 0.45;
    if (state.query !== null) pen.fillRect(x, y + state.query * unit + unit / 2 - 0.5, size, 1);
    if (state.key !== null) pen.fillRect(x + state.key * unit + unit / 2 - 0.5, y, 1, size);
    pen.globalAlpha = 1;
  }

  function paintMap() {
    const pen = context(map, margin + side + 2, margin + side + 2), unit = side / n;
    pen.drawImage(pictures[state.layer * heads + state.head], margin, margin, side, side);
    pen.strokeStyle = colours.quiet;
    pen.strokeRect(margin - 0.5, margin - 0.5, side + 1, side + 1);
    if (margin > 10) {
      pen.font = `${Math.min(11, Math.max(8, unit - 1))}px ui-monospace, monospace`;
      pen.textBaseline = "middle";
      const cut = (token) => (token.length > 11 ? `${token.slice(0, 10)}…` : token);
      for (let i = 0; i < n; i++) {
        pen.fillStyle = i === state.query ? colours.mark : colours.ink;
        pen.textAlign = "right";
        pen.fillText(cut(maps.tokens[i]), margin - 4, margin + (i + 0.5) * unit);
        pen.save();
        pen.translate(margin + (i + 0.5) * unit, margin - 4);
        pen.rotate(-Math.PI / 2);
        pen.textAlign = "left";
        pen.fillStyle = i === state.key ? colours.mark : colours.ink;
        pen.fillText(cut(maps.tokens[i]), 0, 0);
        pen.restore();
      }
    }
    if (state.query !== null && state.key !== null) {
      pen.strokeStyle = colours.mark;
      pen.lineWidth = 2;
      pen.strokeRect(margin + state.key * unit, margin + state.query * unit, unit, unit);
    } else cross(pen, margin, margin, side);
    title.textContent = `Head ${state.layer}.${state.head}: query down, key across`;
  }

  function say() {
    const { query, key, held } = state, [layer, head] = state.over ?? [state.layer, state.head];
    const whose = `Head ${layer}.${head}: `, end = held ? " · held; Escape lets go." : "";
    if (query === null) {
      said.textContent = "Point at a token, at a head or at an entry; a click holds it.";
      return;
    }
    if (key !== null) {
      const what = sees(head, query, key) ? `${maps.quantity} ${valueOf(layer, head, query, key).toPrecision(3)}` : "not visible";
      said.textContent = `${whose}${name(query)} → ${name(key)}, ${what}${end}`;
      return;
    }
    const keys = [...Array(n).keys()].filter((other) => sees(head, query, other));
    const size = (other) => Math.abs(valueOf(layer, head, query, other));
    keys.sort((one, other) => size(other) - size(one));
    const best = keys.slice(0, 3).map((other) => `${name(other)} ${valueOf(layer, head, query, other).toPrecision(3)}`);
    said.textContent = `${whose}${name(query)} looks at ${best.join(", ")}${end}`;
  }

  function paintText() {
    const { query, key } = state, [layer, head] = state.over ?? [state.layer, state.head];
    let most = 0;
    if (query !== null)
      for (let other = state.hidesFirst ? 1 : 0; other < n; other++) most = Math.max(most, Math.abs(valueOf(layer, head, query, other)));
    const [red, green, blue] = theme === "dark" ? [86, 180, 233] : [0, 114, 178];
    tokens.forEach((button, position) => {
      const share = most > 0 && sees(head, query, position) ? Math.abs(valueOf(layer, head, query, position)) / most : 0;
      button.style.backgroundColor = share > 0.01 ? `rgba(${red}, ${green}, ${blue}, ${(0.6 * share).toFixed(3)})` : "";
      button.classList.toggle("query", position === query);
      button.classList.toggle("key", position === key);
    });
  }

  function show() {
    paintText();
    paintGrid();
    paintMap();
    say();
    const { layer, head, query, key, held } = state;
    Object.assign(host.dataset, { head: `${layer}.${head}`, query: query ?? "", key: key ?? "", held });
    host.dispatchEvent(new CustomEvent("heads", { detail: { ...state } }));
  }

  function layOut() {
    const width = Math.max(280, host.clientWidth), beside = width >= 900;
    const room = beside ? width - 520 : width;
    // Deep models have small cells, so that the grid and the large map are seen together.
    cell = Math.max(24, Math.min(128, Math.floor((room - LEFT) / heads) - GAP, Math.floor(640 / layers) - GAP));
    margin = n <= 48 ? 84 : 8;
    side = Math.max(180, Math.min(beside ? 400 : 520, width - margin - 4));
    side = n <= side ? Math.floor(side / n) * n : side;
    show();
  }

  const inMap = (event) => {
    const unit = side / n, limit = (value) => Math.floor((value - margin) / unit);
    const query = limit(event.offsetY), key = limit(event.offsetX);
    return query >= 0 && key >= 0 && query < n && key < n ? { query, key, over: null } : null;
  };
  const inGrid = (event) => {
    const step = cell + GAP, x = event.offsetX - LEFT, y = event.offsetY - TOP;
    const head = Math.floor(x / step), layer = Math.floor(y / step);
    if (x < 0 || y < 0 || head >= heads || layer >= layers) return null;
    const place = (value) => Math.min(n - 1, Math.floor(((value % step) / cell) * n));
    return { layer, head, query: place(y), key: place(x) };
  };
  const point = (place) => {
    if (state.held) return;
    Object.assign(state, place);
    show();
  };
  const nothing = { query: null, key: null, over: null };
  const hold = (place) => {
    const again = state.held && state.query === place.query && state.key === place.key;
    Object.assign(state, again ? nothing : place, { held: !again });
    show();
  };
  const positionOf = (event) => {
    const button = event.target.closest?.(".token");
    return button ? { query: Number(button.dataset.position), key: null, over: null } : null;
  };

  first.addEventListener("change", () => {
    state.hidesFirst = first.checked;
    paintPictures();
    show();
  });
  text.addEventListener("pointerover", (event) => positionOf(event) && point(positionOf(event)));
  text.addEventListener("focusin", (event) => positionOf(event) && point(positionOf(event)));
  text.addEventListener("click", (event) => positionOf(event) && hold(positionOf(event)));
  map.addEventListener("pointermove", (event) => point(inMap(event) ?? nothing));
  map.addEventListener("click", (event) => inMap(event) && hold(inMap(event)));
  grid.addEventListener("pointermove", (event) => {
    const place = inGrid(event);
    point(place ? { query: place.query, key: place.key, over: [place.layer, place.head] } : nothing);
  });
  grid.addEventListener("click", (event) => {
    const place = inGrid(event);
    if (place) Object.assign(state, { layer: place.layer, head: place.head, over: null });
    show();
  });
  for (const element of [text, map, grid]) element.addEventListener("pointerleave", () => point(nothing));
  const move = (value, step, size) => Math.max(0, Math.min(size - 1, value + step));
  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  grid.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    Object.assign(state, { layer: move(state.layer, step[0], layers), head: move(state.head, step[1], heads) });
    show();
  });
  map.addEventListener("keydown", (event) => {
    const step = STEPS[event.key], { query, key, held } = state;
    if (step) Object.assign(state, { query: move(query ?? 0, step[0], n), key: move(key ?? 0, step[1], n) });
    else if (event.key === "Enter" && query !== null) state.held = !held;
    else return;
    event.preventDefault();
    show();
  });
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    Object.assign(state, nothing, { held: false });
    show();
  });

  function retheme(changed) {
    theme = changed;
    colours = maps.themes[theme];
    for (const [variable, colour] of [["ink", "ink"], ["quiet", "quiet"], ["quiet-ink", "quietInk"], ["mark", "mark"]])
      host.style.setProperty(`--${variable}`, colours[colour]);
    paintPictures();
    layOut();
  }
  retheme(theme);
  let width = host.clientWidth;
  const resized = new ResizeObserver(() => {
    if (host.clientWidth !== width) {
      width = host.clientWidth;
      layOut();
    }
  });
  resized.observe(host);
  // What somebody else has chosen: a head, and a query or an entry that is held (null for none).
  function place({ head: [layer, head], query, key }) {
    const held = query !== null;
    const same = state.layer === layer && state.head === head && state.held === held && (!held || (state.query === query && state.key === key));
    if (same) return;
    Object.assign(state, { layer, head, held, query, key, over: null });
    show();
  }
  return { retheme, place, stop: () => resized.disconnect() };
}
