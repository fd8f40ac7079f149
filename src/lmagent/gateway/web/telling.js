// @ts-check
// What is told to a person who does not look, or cannot see: that it waits for them, works, or has ended.
import { notify } from "./notify.js";
import { announced } from "./state.js";
import { busy } from "./status.js";
import { header } from "./words.js";

/** @typedef {import("./wire.js").View} View */

/** @param {string} session @param {View} before @param {View} after */
export function tell(session, before, after) {
  const title = after.title || "lmagent";
  const asked = after.approvals.find((item) => !before.approvals.includes(item));
  if (asked) {
    announced.value = header.approvalAsked(asked.summary);
    notify(header.about(title, header.needsApproval), asked.summary, `${session}:${asked.id}`);
  } else if (after.plan && !before.plan) {
    announced.value = header.planAsked(after.plan["plan"].title);
    notify(header.about(title, header.planNeedsApproval), after.plan["plan"].title, `${session}:plan`);
  } else if (after.outcome && !before.outcome) {
    const ended = header.outcomes[after.outcome] ?? after.outcome;
    announced.value = ended;
    notify(header.about(title, ended), lastWords(after), `${session}:turn`);
  } else if (busy(after) && !busy(before)) announced.value = header.working;
}

/** The end of the answer. @param {View} view */
function lastWords(view) {
  const said = view.blocks.findLast((block) => block.kind === "text" || block.kind === "notice");
  return said ? said.text.slice(0, 160) : "";
}
