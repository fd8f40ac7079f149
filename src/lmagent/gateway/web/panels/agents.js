// @ts-check
// Sub-agents at any depth: what each is at, and what a person can do with one.
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { figure } from "../parts.js";
import { sessionHref } from "../router.js";
import { current } from "../session.js";
import { toast } from "../state.js";
import { agents as texts } from "../words/pages.js";
import { Sure } from "./kit.js";
import { standing } from "./standing.js";

/**
 * @typedef {Object} Node
 * @property {string} session
 * @property {string} parent session that asked
 * @property {string} task
 * @property {string} objective
 * @property {string} status
 * @property {number} step model calls until now
 * @property {number} tokens
 * @property {string} title
 */

/** @param {{nodes: Node[], root: string, changed: () => void}} props */
export function Agents({ nodes, root, changed }) {
  const known = new Set(nodes.map((node) => node.session));
  const tops = nodes.filter((node) => node.parent === root || !known.has(node.parent));
  return html`<section class="section" aria-label=${texts.heading}><h3>${texts.heading} <span class="small quiet">${nodes.length}</span></h3>
    <ul class="bare agents">${tops.map((node) => html`<${Agent} key=${node.session} node=${node} nodes=${nodes} changed=${changed} />`)}</ul></section>`;
}

/** @param {{node: Node, nodes: Node[], changed: () => void}} props */
function Agent({ node, nodes, changed }) {
  const [steering, setSteering] = useState(false);
  const { icon, kind, words } = standing({ status: node.status });
  const below = nodes.filter((other) => other.parent === node.session);
  const name = node.objective || node.title || node.session;
  const runs = node.status === "running";
  const stop = async () => {
    if (await current.peek()?.command({ type: "interrupt", to: node.session })) toast(texts.told);
    changed();
  };
  const steer = async (/** @type {any} */ event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("words")?.toString().trim() ?? "";
    if (!text) return;
    const message = { role: "user", parts: [{ type: "text", text }] };
    if (!(await current.peek()?.command({ type: "steer", to: node.session, message }))) return;
    toast(texts.delivered);
    setSteering(false);
  };
  return html`<li><div class="card agent" data-kind=${kind}>
    <div class="headline"><${Icon} name=${icon} /><span class="grow wrap">${name}</span><span class=${`chip ${kind}`}>${words}</span></div>
    <p class="small quiet">${[node.task, texts.steps(node.step), texts.tokens(figure(node.tokens))].filter(Boolean).join(" · ")}</p>
    <div class="row"><a class="button plain" href=${sessionHref(node.session)} aria-label=${texts.openOf(name)}><${Icon} name="right" />${texts.open}</a>
      ${runs && html`<button class="button plain" aria-expanded=${steering} onClick=${() => setSteering(!steering)}>${texts.message}</button>
        <${Sure} label=${texts.stop} icon="stop" kind="button plain" question=${texts.stopQuestion} yes=${texts.stopYes} act=${stop} />`}</div>
    ${runs && steering && html`<form class="row" onSubmit=${steer}><input class="field grow" name="words" aria-label=${texts.messageTo(name)} autofocus required />
      <button class="button">${texts.send}</button></form>`}
  </div>
  ${below.length > 0 && html`<ul class="bare agents">${below.map((child) => html`
    <${Agent} key=${child.session} node=${child} nodes=${nodes} changed=${changed} />`)}</ul>`}</li>`;
}
