// Light or dark: as a site's own switch (data-theme), Jupyter or VS Code says of itself, or else as the browser's user prefers.

function themeOfPage() {
  const { theme } = document.documentElement.dataset;
  if (theme === "light" || theme === "dark") return theme;
  const { jpThemeLight } = document.body?.dataset ?? {};
  if (jpThemeLight !== undefined) return jpThemeLight === "false" ? "dark" : "light";
  const kind = document.body?.dataset.vscodeThemeKind;
  if (kind !== undefined) return kind.includes("dark") ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

// Calls back with the theme whenever it changes; what it returns ends that.
function whenThemeChanges(callback) {
  const changed = () => callback(themeOfPage()), dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", changed);
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  return () => {
    dark.removeEventListener("change", changed);
    observer.disconnect();
  };
}
