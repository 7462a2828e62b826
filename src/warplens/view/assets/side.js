// The column beside a timeline: tabs with the findings, and with the selection.

import { element } from "./details.js";

export class Side {
  // `tabs` are pairs of a name and the element that its tab shows.
  constructor(tabs, label) {
    this.tabs = tabs.map(([name, body], at) => {
      const id = `${label}-${name.toLowerCase()}`;
      const tab = element("button", { type: "button", role: "tab", id: `${id}-tab`, "aria-controls": id, text: name, onclick: () => this.show(at) });
      const page = element("div", { role: "tabpanel", id, "aria-labelledby": `${id}-tab`, class: "page", tabindex: "0" }, body);
      return { tab, page };
    });
    const list = element("div", { role: "tablist", class: "tabs", "aria-label": "Beside the timeline", onkeydown: (event) => this.step(event) }, ...this.tabs.map(({ tab }) => tab));
    this.root = element("aside", { class: "side", "aria-label": "Findings and selection" }, element("div", { class: "side-box" }, list, ...this.tabs.map(({ page }) => page)));
    this.show(0);
  }

  show(at) {
    this.at = at;
    this.tabs.forEach(({ tab, page }, each) => {
      tab.setAttribute("aria-selected", String(each === at));
      tab.tabIndex = each === at ? 0 : -1;
      page.hidden = each !== at;
    });
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    this.show((this.at + by + this.tabs.length) % this.tabs.length);
    this.tabs[this.at].tab.focus();
    event.preventDefault();
  }
}
