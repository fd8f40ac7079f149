// @ts-check
// Cards that ask for a decision: approvals, also those of sub-agents, and plans.
import { Preview } from "../text/diff.js";
import { Icon } from "../icons.js";
import { drawn, html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { lettersOn, writes } from "../panels/keys.js";
import { Square } from "../parts.js";
import { visible } from "../session/visible.js";
import { approvals as words, plans as texts } from "../words/conversation.js";

/** @typedef {import("../session/session.js").Session} Session */
/** @typedef {import("../session/wire.js").Approval} Approval */

/** Milliseconds that a card is shown before it can be answered: the second press of a double one is for the card before it. */
const READ = 600;

/** @param {{session: Session}} props */
export function Approvals({ session }) {
  const { approvals: asked, plan } = session.view.value;
  if (!asked.length) return null;
  return html`<div class="column">${asked.map((item) => html`<${Card} key=${item.id} session=${session} asked=${item} only=${asked.length === 1 && !plan} />`)}</div>`;
}

/** @param {string} text */
const flat = (text) => visible(text).replace(/\s+/g, " ").trim();

/** Whether the preview says all that the summary says: then that is left out. @param {Approval} asked */
function isSaid({ summary, preview }) {
  const said = flat(summary).replace(/^\S+ /, "").replace(/…$/, "");
  return said !== "" && flat(preview).includes(said);
}

/** @param {{session: Session, asked: Approval, only: boolean}} props `only`: no other card is open */
function Card({ session, asked, only }) {
  const [feedback, setFeedback] = useState("");
  const [locked, setLocked] = useState(true);
  const place = useCardFocus();
  const asker = asked.tool.startsWith("the server ") && visible(asked.tool); // no tool has a name with spaces
  const rules = visible(asked.grant).split("\n").filter(Boolean);
  const answer = async (/** @type {boolean} */ approved, scope = "once") => {
    if (locked) return;
    if (place.current?.contains(document.activeElement)) place.current.focus();
    setLocked(true);
    const taken = await session.command({ type: "approve", approval: asked.id, approved, scope, feedback: feedback.trim() });
    if (!taken) setLocked(false);
  };
  const lettered = only && lettersOn.value;
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const inside = place.current?.contains(/** @type {Node} */ (event.target));
    if (!inside && !lettered) return;
    // A key that is held down would answer the next question before it was read: the focus moves to it.
    if (writes(event) || event.defaultPrevented || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "a") answer(true);
    else if (event.key === "d") answer(false);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    const timer = setTimeout(() => setLocked(false), READ);
    return () => clearTimeout(timer);
  }, []);
  useEffect(() => {
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  return html`<section class=${lettered ? "block ask card lettered" : "block ask card"} aria-label=${words.region} tabindex="-1" ref=${place}>
    <header class="row"><${Icon} name="shield" /><h2 class="grow">${asker ? words.asks(asker) : words.heading}</h2>
      ${!asker && html`<span class="quiet small">${asked.tool}</span>`}</header>
    ${!isSaid(asked) && html`<p class="what">${visible(asked.summary)}</p>`}
    ${asked.reason && html`<p class="quiet small">${visible(asked.reason)}</p>`}
    ${asked.preview && html`<${Preview} text=${asked.preview} label=${words.preview} />`}
    <label class="small quiet">${asker ? words.answer : words.message}
      <input class="field" value=${feedback} maxlength="2000" placeholder=${asker ? "" : words.placeholder}
        onInput=${(/** @type {any} */ event) => setFeedback(event.target.value)} /></label>
    <div class="row answers">
      <button class="button main" disabled=${locked} onClick=${() => answer(true)}><${Icon} name="check" />${words.approve}</button>
      <button class="button fault" disabled=${locked} onClick=${() => answer(false)}><${Icon} name="close" />${words.deny}</button>
      ${rules.length > 0 && html`<button class="button plain always" disabled=${locked} onClick=${() => answer(true, "session")}>
        <span>${words.always(html`<code>${rules.join(", ")}</code>`)}</span></button>`}
      <span class="keys small quiet">${words.keys(html`<kbd>a</kbd>`, html`<kbd>d</kbd>`)}</span>
    </div>
  </section>`;
}

/** A reference for the card: the focus moves from it to the next card or the conversation, and not to the top of the page. */
function useCardFocus() {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const card = place.current;
    return () => {
      if (!card?.contains(document.activeElement)) return;
      drawn(() => /** @type {HTMLElement | null} */ (document.querySelector(".ask") ?? document.querySelector(".transcript"))?.focus());
    };
  }, []);
  return place;
}

/** @typedef {import("../session/wire.js").Plan} Plan */
/** @typedef {import("../session/wire.js").PlanStep} PlanStep */

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
  return html`<section class="block ask card plan" aria-label=${texts.region} tabindex="-1" ref=${place}>
    <header class="row"><${Icon} name="tasks" /><h2 class="grow">${visible(plan.title)}</h2>${changed && html`<span class="chip">${texts.edited}</span>`}</header>
    <dl class="facts"><dt>${texts.goal}</dt><dd>${visible(plan.goal)}</dd>
      ${(plan.risk_areas ?? []).length > 0 && html`<dt>${texts.risks}</dt><dd>${visible((plan.risk_areas ?? []).join("; "))}</dd>`}</dl>
    ${editing ? html`<${Editor} plan=${plan} change=${setPlan} />` : html`<${Steps} steps=${plan.steps} />`}
    <label class="small quiet">${texts.message}
      <input class="field" value=${feedback} maxlength="4000" placeholder=${texts.placeholder}
        onInput=${(/** @type {any} */ event) => setFeedback(event.target.value)} /></label>
    <div class="row answers">
      <button class="button main" disabled=${sent || !plan.steps.length} onClick=${() => decide("approved")}>
        <${Icon} name="check" />${changed ? texts.approveEdited : texts.approve}</button>
      <button class="button" disabled=${sent || !feedback.trim()} onClick=${() => decide("revise")}>${texts.revise}</button>
      <button class="button plain" disabled=${sent} aria-pressed=${editing} onClick=${() => setEditing(!editing)}>
        <${Icon} name="edit" />${editing ? texts.stopEditing : texts.edit}</button>
      <button class="button plain fault" disabled=${sent} onClick=${() => decide("rejected")}>${texts.reject}</button>
    </div>
  </section>`;
}

/** @param {{steps: PlanStep[]}} props */
function Steps({ steps }) {
  return html`<ol class="steps">${steps.map((step) => html`<li key=${step.id}>${visible(step.description)}
    ${step.verification && html`<div class="small quiet">${texts.doneWhen(visible(step.verification))}</div>`}
    ${step.risk && html`<div class="small quiet">${texts.risk(visible(step.risk))}</div>`}
    ${(step.dependencies ?? []).length > 0 && html`<div class="small quiet">${texts.after((step.dependencies ?? []).join(", "))}</div>`}
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
      <textarea class="field" rows="2" aria-label=${texts.step(place + 1)} value=${step.description}
        onInput=${(/** @type {any} */ event) => put(place, { description: event.target.value })}></textarea>
      <input class="field" aria-label=${texts.stepDone(place + 1)} placeholder=${texts.donePlaceholder} value=${step.verification ?? ""}
        onInput=${(/** @type {any} */ event) => put(place, { verification: event.target.value })} />
      <${Square} icon="trash" label=${texts.removeStep(place + 1)} onClick=${() => drop(step)} />
    </li>`)}</ol>
    <button class="button" onClick=${more}><${Icon} name="plus" />${texts.addStep}</button>`;
}
