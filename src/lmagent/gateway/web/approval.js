// @ts-check
// Approvals: what is asked for, why, and the answers. Those of sub-agents come the same way.
import { useCardFocus } from "./cardfocus.js";
import { Preview } from "./diff.js";
import { Icon } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";
import { lettersOn, writes } from "./panels/keys.js";
import { visible } from "./visible.js";
import { approvals as words } from "./words/conversation.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./wire.js").Approval} Approval */

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
    // A key that is held down would answer what is asked next, which nobody has read yet: the focus goes on to it.
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
    <header class="row"><${Icon} name="shield" /><h2 class="grow">${words.heading}</h2><span class="quiet small">${asked.tool}</span></header>
    ${!isSaid(asked) && html`<p class="what">${visible(asked.summary)}</p>`}
    ${asked.reason && html`<p class="quiet small">${visible(asked.reason)}</p>`}
    ${asked.preview && html`<${Preview} text=${asked.preview} label=${words.preview} />`}
    <label class="small quiet">${words.message}
      <input class="field" value=${feedback} maxlength="2000" placeholder=${words.placeholder}
        onInput=${(/** @type {any} */ event) => setFeedback(event.target.value)} /></label>
    <div class="row answers">
      <button class="button main" disabled=${locked} onClick=${() => answer(true)}><${Icon} name="check" />${words.approve}</button>
      <button class="button fault" disabled=${locked} onClick=${() => answer(false)}><${Icon} name="cross" />${words.deny}</button>
      ${rules.length > 0 && html`<button class="button plain always" disabled=${locked} onClick=${() => answer(true, "session")}>
        <span>${words.always(html`<code>${rules.join(", ")}</code>`)}</span></button>`}
      <span class="keys small quiet">${words.keys(html`<kbd>a</kbd>`, html`<kbd>d</kbd>`)}</span>
    </div>
  </section>`;
}
