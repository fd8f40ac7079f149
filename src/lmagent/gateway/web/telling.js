// @ts-check
// What is told to a person who does not look, or cannot see: that it waits for them, works, or has ended.
import { notify } from "./notify.js";
import { announced } from "./state.js";
import { busy } from "./status.js";
import { shell as words } from "./words/conversation.js";

/** @typedef {import("./wire.js").View} View */

/** @param {string} session @param {View} before @param {View} after */
export function tell(session, before, after) {
  const title = after.title || "lmagent";
  const asked = after.approvals.find((item) => !before.approvals.includes(item));
  if (asked) {
    announced.value = words.approvalWaits(asked.summary);
    notify(session, asked.id, words.approvalTitle(title), asked.summary);
  } else if (after.plan && !before.plan) {
    announced.value = words.planWaits(after.plan["plan"].title);
    notify(session, "plan", words.planTitle(title), after.plan["plan"].title);
  } else if (after.outcome && !before.outcome) {
    const ended = words.outcomes[/** @type {keyof typeof words.outcomes} */ (after.outcome)] ?? after.outcome;
    announced.value = ended;
    notify(session, "turn", `${title}: ${ended}`, lastWords(after));
  } else if (busy(after) && !busy(before)) announced.value = words.working;
}

/** The end of the answer. @param {View} view */
function lastWords(view) {
  const said = view.blocks.findLast((block) => block.kind === "text" || block.kind === "notice");
  return said ? said.text.slice(0, 160) : "";
}
