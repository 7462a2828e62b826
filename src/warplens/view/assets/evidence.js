// From a finding to its evidence in the timeline, and back. The address names the finding, so that it can be shared.

const ADDRESS = /^#finding=(\w+)$/;

export function followFindings(panels) {
  let active = null;
  const cards = [...document.querySelectorAll("li[data-finding]")];
  const find = (key) => panels.find((panel) => panel.info.findings[key]);

  const mark = (key) => {
    for (const card of cards) {
      const chosen = card.dataset.finding === key;
      const link = card.querySelector("a.show");
      card.classList.toggle("chosen", chosen);
      if (chosen) card.setAttribute("aria-current", "true");
      else card.removeAttribute("aria-current");
      if (chosen) for (let up = card.parentElement; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
      link.textContent = chosen ? "Back to the whole timeline" : "Show in the timeline";
      link.setAttribute("href", chosen ? "#timeline" : `#finding=${card.dataset.finding}`);
    }
  };

  const leave = () => {
    active?.panel.restoreView(active.before);
    active = null;
    mark(null);
  };

  // Unlike following a link to the timeline, this does not scroll the page.
  const back = () => {
    history.pushState(null, "", "#timeline");
    leave();
  };

  const follow = () => {
    const key = ADDRESS.exec(location.hash)?.[1];
    const panel = key && find(key);
    if (!panel) {
      if (active && ["", "#timeline"].includes(location.hash)) leave();
      return;
    }
    if (active && active.panel !== panel) leave();
    active = { panel, before: active?.before ?? panel.saveView() };
    panel.showEvidence(panel.info.findings[key]);
    mark(key);
  };

  for (const card of cards) {
    card.querySelector("a.show").addEventListener("click", (event) => {
      if (!card.classList.contains("chosen")) return;
      event.preventDefault();
      back();
    });
    card.addEventListener("click", (event) => {
      if (!event.target.closest("a, button, summary") && !getSelection().toString()) location.hash = `finding=${card.dataset.finding}`;
    });
  }
  for (const panel of panels) {
    panel.addEventListener("clear", () => active && back());
  }
  addEventListener("hashchange", follow);
  follow();
}
