// Draws the report's maps and figures, in the theme that the reader prefers.

async function drawReport() {
  const { header, arrays } = unpack(await inflate(document.getElementById("data").textContent));
  for (const host of document.querySelectorAll("[data-maps]")) {
    const place = Number(host.dataset.maps);
    host.show(header.maps[place], arrays[2 * place], arrays[2 * place + 1]);
  }
  const places = [...document.querySelectorAll("[data-figure]")];
  if (places.length) {
    const code = new Blob([await inflate(document.getElementById("plotly").textContent)], { type: "text/javascript" });
    const address = URL.createObjectURL(code);
    await new Promise((done, failed) => {
      const element = Object.assign(document.createElement("script"), { src: address, onload: done, onerror: failed });
      document.head.append(element);
    });
    URL.revokeObjectURL(address);
  }
  const draw = (theme) => {
    return Promise.all(
      places.map((place) => {
        const { data, layout, height } = header.figures[Number(place.dataset.figure)][theme];
        // A copy: plotly writes its own defaults into what it is given.
        return Plotly.react(place, structuredClone(data), { height, ...structuredClone(layout) }, header.config);
      }),
    );
  };
  await draw(themeOfPage());
  whenThemeChanges(async (theme) => {
    document.documentElement.dataset.drawn = "";
    await draw(theme);
    document.documentElement.dataset.drawn = theme;
  });
  document.documentElement.dataset.drawn = themeOfPage();
}

drawReport().catch((error) => {
  const trouble = document.getElementById("trouble");
  const old = typeof DecompressionStream === "undefined";
  trouble.textContent = old
    ? "This browser cannot unpack the figures and maps (it lacks DecompressionStream, of 2023); tables and text are whole."
    : `The figures and maps could not be drawn: ${error.message}`;
  trouble.hidden = false;
  throw error;
});
