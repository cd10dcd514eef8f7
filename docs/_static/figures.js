// Figures of the gallery: drawn by the site's plotly.js from the JSON beside them, in the page's theme.
// aotlensFigures has plotly's settings and, for each colour on a light page, the one on a dark page.

function recoloured(value, dark) {
  if (typeof value === "string") return dark[value] ?? value;
  if (Array.isArray(value)) return value.map((each) => recoloured(each, dark));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, recoloured(each, dark)]));
}

function drawFigures() {
  const colours = document.documentElement.dataset.theme === "dark" ? aotlensFigures.dark : {};
  for (const host of document.querySelectorAll(".aotlens-figure")) {
    const { data, layout } = recoloured(JSON.parse(host.querySelector("script").textContent), colours);
    host.figure ??= host.appendChild(document.createElement("div"));
    Plotly.react(host.figure, data, layout, aotlensFigures.display).then(() => {
      host.dataset.drawn = document.documentElement.dataset.theme || "light";
    });
  }
}

drawFigures();
new MutationObserver(drawFigures).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
