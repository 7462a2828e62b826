// Light and dark themes: the page's custom properties, read for canvases.

const NAMES = ["plot", "band", "surface", "text", "muted", "grid", "line", "accent", "onAccent", "select", "veil", "thumb", "critical"];

export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

export function followTheme(button, apply) {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (name) => {
    root.dataset.theme = name;
    button.setAttribute("aria-label", name === "dark" ? "Switch to light" : "Switch to dark");
    button.textContent = name === "dark" ? "☀ Light" : "☾ Dark";
    apply(readTheme());
  };
  set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => set(dark.matches ? "dark" : "light"));
  button.addEventListener("click", () => set(root.dataset.theme === "dark" ? "light" : "dark"));
  // Print in light colours.
  let before = null;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    set("light");
  });
  addEventListener("afterprint", () => before && set(before));
}
