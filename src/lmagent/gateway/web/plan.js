// @ts-check
// A plan that waits for a decision: approve it, as it is or edited; have it revised; reject it.
import { useCardFocus } from "./cardfocus.js";
import { Icon } from "./icons.js";
import { html, useState } from "./lib.js";
import { visible } from "./visible.js";
import { plans as words } from "./words/conversation.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./wire.js").Plan} Plan */
/** @typedef {import("./wire.js").PlanStep} PlanStep */

/** @param {{session: Session}} props */
export function PlanCard({ session }) {
  const proposal = session.view.value.plan;
  return proposal && html`<div class="column"><${Proposal} key=${proposal.id} session=${session} given=${proposal["plan"]} /></div>`;
}

/** @param {{session: Session, given: Plan}} props */
function Proposal({ session, given }) {
  const [plan, setPlan] = useState(given);
  const [editing, setEditing] = useState(false);
  const [feedback, setFeedback] = useState("");
  const [sent, setSent] = useState(false);
  const place = useCardFocus();
  const changed = JSON.stringify(plan) !== JSON.stringify(given);
  const decide = async (/** @type {"approved" | "revise" | "rejected"} */ decision) => {
    if (place.current?.contains(document.activeElement)) place.current.focus();
    setSent(true);
    const edited = decision === "approved" && changed ? plan : null;
    const taken = await session.command({ type: "decide_plan", decision, plan: edited, feedback: feedback.trim() });
    if (!taken) setSent(false);
  };
  return html`<section class="block ask card plan" aria-label=${words.region} tabindex="-1" ref=${place}>
    <header class="row"><${Icon} name="tasks" /><h2 class="grow">${visible(plan.title)}</h2>${changed && html`<span class="chip">${words.edited}</span>`}</header>
    <dl class="facts"><dt>${words.goal}</dt><dd>${visible(plan.goal)}</dd>
      ${(plan.risk_areas ?? []).length > 0 && html`<dt>${words.risks}</dt><dd>${visible((plan.risk_areas ?? []).join("; "))}</dd>`}</dl>
    ${editing ? html`<${Editor} plan=${plan} change=${setPlan} />` : html`<${Steps} steps=${plan.steps} />`}
    <label class="small quiet">${words.message}
      <input class="field" value=${feedback} maxlength="4000" placeholder=${words.placeholder}
        onInput=${(/** @type {any} */ event) => setFeedback(event.target.value)} /></label>
    <div class="row answers">
      <button class="button main" disabled=${sent || !plan.steps.length} onClick=${() => decide("approved")}>
        <${Icon} name="check" />${changed ? words.approveEdited : words.approve}</button>
      <button class="button" disabled=${sent || !feedback.trim()} onClick=${() => decide("revise")}>${words.revise}</button>
      <button class="button plain" disabled=${sent} aria-pressed=${editing} onClick=${() => setEditing(!editing)}>
        <${Icon} name="edit" />${editing ? words.stopEditing : words.edit}</button>
      <button class="button plain fault" disabled=${sent} onClick=${() => decide("rejected")}>${words.reject}</button>
    </div>
  </section>`;
}

/** @param {{steps: PlanStep[]}} props */
function Steps({ steps }) {
  return html`<ol class="steps">${steps.map((step) => html`<li key=${step.id}>${visible(step.description)}
    ${step.verification && html`<div class="small quiet">${words.doneWhen(visible(step.verification))}</div>`}
    ${step.risk && html`<div class="small quiet">${words.risk(visible(step.risk))}</div>`}
    ${(step.dependencies ?? []).length > 0 && html`<div class="small quiet">${words.after((step.dependencies ?? []).join(", "))}</div>`}
  </li>`)}</ol>`;
}

/** @param {{plan: Plan, change: (plan: Plan) => void}} props */
function Editor({ plan, change }) {
  const put = (/** @type {number} */ place, /** @type {Partial<PlanStep>} */ fields) => {
    change({ ...plan, steps: plan.steps.map((step, index) => (index === place ? { ...step, ...fields } : step)) });
  };
  const drop = (/** @type {PlanStep} */ gone) => {
    const kept = plan.steps.filter((step) => step !== gone);
    const without = (/** @type {PlanStep} */ step) => (step.dependencies ?? []).filter((id) => id !== gone.id);
    change({ ...plan, steps: kept.map((step) => (step.dependencies ? { ...step, dependencies: without(step) } : step)) });
  };
  const more = () => {
    const taken = new Set(plan.steps.map((step) => step.id));
    let number = plan.steps.length + 1;
    while (taken.has(String(number))) number++;
    change({ ...plan, steps: [...plan.steps, { id: String(number), description: "" }] });
  };
  return html`<ol class="steps">${plan.steps.map((step, place) => html`<li key=${step.id} class="edit-step">
      <textarea class="field" rows="2" aria-label=${words.step(place + 1)} value=${step.description}
        onInput=${(/** @type {any} */ event) => put(place, { description: event.target.value })}></textarea>
      <input class="field" aria-label=${words.stepDone(place + 1)} placeholder=${words.donePlaceholder} value=${step.verification ?? ""}
        onInput=${(/** @type {any} */ event) => put(place, { verification: event.target.value })} />
      <button class="button plain square" aria-label=${words.removeStep(place + 1)} onClick=${() => drop(step)}><${Icon} name="trash" /></button>
    </li>`)}</ol>
    <button class="button" onClick=${more}><${Icon} name="plus" />${words.addStep}</button>`;
}
