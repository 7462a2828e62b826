// The page of a running job: a row for each rank, filled anew with each state.

import { element } from "./details.js";
import { duration, integer } from "./format.js";
import { fetchStates, quoted, tell } from "./states.js";
import { followTheme } from "./theme.js";

const byId = (id) => document.getElementById(id);
const job = { state: null, updates: 0 };
const seconds = (value) => (value === null ? "" : duration(value * 1e9));

function show(state) {
  byId("facts").replaceChildren(...state.facts.map(([name, text]) => element("div", {}, element("dt", { text: name }), element("dd", { text }))));
  const said = [...state.said, ...state.notes];
  byId("warnings").hidden = !said.length;
  byId("warnings").replaceChildren(...said.map((text) => element("li", {}, ...quoted(text))));
  byId("ranks").replaceChildren(...state.ranks.map(row));
  tell("live", "live");
  Object.assign(job, { state, updates: job.updates + 1 });
}

function row(each) {
  const name = (text) => element("td", { class: "name", text: text ?? "", title: text ?? "" });
  const number = (text) => element("td", { text });
  const more = each.more ? ` and ${each.more} more` : "";
  const inside = each.inside ? ", in it" : "";
  return element("tr", { "data-rank": String(each.rank), "data-status": each.flag || each.status },
    element("td", {}, element("a", { href: `rank/${each.rank}/`, text: String(each.rank) })),
    element("td", { class: "rank-status", text: status(each) }),
    name(each.kernel === null ? "" : each.kernel + more), element("td", { class: "running", text: seconds(each.running_s) }),
    name(each.last_launch), number(seconds(each.last_launch_s)),
    name(each.collective === null ? "" : each.collective + inside), number(seconds(each.collective_s)),
    number(integer(each.launches)), name(each.where));
}

function status(each) {
  if (each.flag) return each.flag;
  if (each.status === "silent") return `no answer for ${seconds(each.silent_s)}`;
  if (each.status === "answers") return each.kernel !== null ? "runs" : each.inside ? "waits" : "no kernel";
  return each.status;
}

window.warplensJob = job;
followTheme(byId("theme"), () => undefined);
fetchStates(show, { over: "the job has ended", lost: "`warplens view` has ended", next: () => job.state?.number ?? 0 });
