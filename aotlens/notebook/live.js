// The live widget: the maps of all heads, whose chosen head and held entry are Python's, too, and a line for another text.

const bytes = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

function render({ model, el }) {
  const trouble = document.createElement("p"), view = document.createElement("aotlens-heads");
  trouble.setAttribute("role", "alert");
  el.append(...(model.get("text") === null ? [] : [lineForText(model)]), trouble, view);

  function draw() {
    view.show(model.get("maps"), bytes(model.get("steps")), bytes(model.get("visible")));
    place();
  }
  const place = () => view.place({ head: model.get("head"), query: model.get("query"), key: model.get("key") });
  view.addEventListener("heads", ({ detail: { head, query, key, held } }) => {
    const entry = held && query !== "";
    tell({ head, query: entry ? query : null, key: entry && key !== "" ? key : null });
  });
  function tell(said) {
    const changed = Object.entries(said).filter(([name, value]) => String(model.get(name)) !== String(value));
    for (const [name, value] of changed) model.set(name, value);
    if (changed.length) model.save_changes();
  }
  const complain = () => {
    trouble.textContent = model.get("trouble");
    trouble.hidden = !trouble.textContent;
  };

  draw();
  complain();
  const heard = { "change:edition": draw, "change:head": place, "change:query": place, "change:key": place, "change:trouble": complain };
  for (const [name, answer] of Object.entries(heard)) model.on(name, answer);
  return () => {
    for (const [name, answer] of Object.entries(heard)) model.off(name, answer);
  };
}

function lineForText(model) {
  const label = document.createElement("label"), line = document.createElement("input");
  Object.assign(label.style, { display: "flex", gap: "8px", alignItems: "baseline", margin: "0 0 8px" });
  Object.assign(line, { type: "text", value: model.get("text"), spellcheck: false });
  Object.assign(line.style, { flex: "1", font: "inherit", padding: "2px 6px" });
  label.append("Text", line);
  label.dataset.lmSuppressShortcuts = "true";
  const ask = () => {
    model.set("text", line.value);
    model.save_changes();
  };
  line.addEventListener("change", ask);
  line.addEventListener("keydown", ({ key }) => key === "Enter" && ask());
  model.on("change:text", () => (line.value = model.get("text")));
  return label;
}

export default { render };
