// Light or dark: as Jupyter or VS Code says of itself, or else as the browser's user prefers.

function themeOfPage() {
  const { jpThemeLight } = document.body?.dataset ?? {};
  if (jpThemeLight !== undefined) return jpThemeLight === "false" ? "dark" : "light";
  const kind = document.body?.dataset.vscodeThemeKind;
  if (kind !== undefined) return kind.includes("dark") ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function whenThemeChanges(callback) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => callback(themeOfPage()));
  const watched = { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] };
  new MutationObserver(() => callback(themeOfPage())).observe(document.body, watched);
}
