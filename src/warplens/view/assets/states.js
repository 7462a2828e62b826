// What the pages of a program and of a job share: the newest state is fetched again and again, and shown.

import { element } from "./details.js";

const [RETRY_MS, MOST_FAILURES, BAD_GATEWAY] = [200, 3, 502];

// Show each state until one has ended. `next` gives the number of the state that is shown, or null to wait.
export async function fetchStates(show, { over, lost, next }) {
  try {
    for (let failures = 0; ; ) {
      const after = next();
      if (after === null) {
        await pause();
        continue;
      }
      try {
        const answer = await fetch(`state?after=${after}`, { cache: "no-store" });
        if (answer.status === BAD_GATEWAY) throw new TypeError("the program does not answer"); // as if it were asked directly
        if (!answer.ok) throw new Error(`the program answered ${answer.status}`);
        const state = await answer.json();
        failures = 0;
        await show(state);
        if (state.ended) return tell("ended", over);
      } catch (error) {
        if (error.name !== "TypeError") throw error; // a failed fetch is one
        if (++failures >= MOST_FAILURES) return tell("ended", lost);
        await pause();
      }
    }
  } catch (error) {
    tell("ended", "this page has failed");
    const problem = document.getElementById("problem");
    problem.hidden = false;
    problem.textContent = `The page failed: ${error.message}. Reload it to try again.`;
    throw error;
  }
}

const pause = () => new Promise((done) => setTimeout(done, RETRY_MS));

export function tell(state, text) {
  const shown = document.getElementById("state");
  shown.dataset.state = state;
  shown.textContent = text;
}

// Names between backticks become code; names are only ever set as text.
export function quoted(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", { text: part }) : part));
}
