// @ts-check
// The skills: their states, read before they are enabled.
import { post } from "../session/api.js";
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { toast } from "../session/state.js";
import { visible } from "../session/visible.js";
import { skills as words } from "../words/knowledge.js";
import { Button, Nothing, Output, Pending, Sure, Toggle, When, useAct, useData } from "./kit.js";

/** @typedef {{name: string, kind: string, state: keyof typeof words.states, description: string, reason: string, folder: string, version: number,
 *   uses: number, last: {at: number, ok: boolean, result: string} | null}} Skill */
/** @typedef {Skill & {content: string, digest: string, source: string, trial: {arguments: object, result: string} | null,
 *   runs: {at: number, ok: boolean, result: string}[]}} Details */

const CHIPS = { enabled: "done", proposed: "waiting", changed: "waiting", broken: "failed", disabled: "" };

export function Panel() {
  const given = useData("/api/skills");
  const skills = /** @type {Skill[]} */ (given.data?.skills ?? []);
  return html`<p class="quiet lead">${words.lead}</p>
    <${Pending} given=${given} what=${words.what} />
    ${given.data && !skills.length && html`<${Nothing} icon="tool" title=${words.none}>${words.noneAbout(html`<code>.lmagent/skills</code>`)}</>`}
    <ul class="bare cards">${skills.map((skill) => html`<${Card} key=${skill.name} skill=${skill} changed=${given.reload} />`)}</ul>`;
}

/** @param {{skill: Skill, changed: () => void}} props */
function Card({ skill, changed }) {
  const [open, setOpen] = useState(false);
  const [busy, run] = useAct(changed);
  const { name, state } = skill;
  const act = (/** @type {string} */ verb, /** @type {(answer: any) => string} */ told, body = {}) => run(async () => {
    const answer = await post(`/api/skills/${encodeURIComponent(name)}/${verb}`, body);
    toast(told(answer), answer.ok === false ? "error" : "info");
  });
  const enable = (/** @type {string} */ digest) => act("enable", ({ ok, text }) => (ok ? words.enabled(name) : words.notEnabled(name, text)), { digest });
  const review = state === "proposed" || state === "changed" ? words.review : words.show;
  return html`<li class="card job" aria-label=${name}>
    <div class="row"><h2 class="grow wrap"><code>${name}</code></h2><span class=${`chip ${CHIPS[state]}`}>${words.states[state]}</span></div>
    <p class="small wrap">${visible(skill.reason || skill.description)}</p>
    ${skill.last && html`<p class="small quiet">${words.uses(skill.uses)}, ${words.last(skill.last.ok)} · <${When} moment=${skill.last.at} /></p>`}
    <div class="row">${state !== "broken" && html`<${Toggle} label=${review} of=${name} open=${open} flip=${() => setOpen(!open)} />
      <${Button} icon="check" label=${words.test} of=${name} disabled=${busy} onClick=${() => act("test", ({ ok, text }) => (ok ? words.passed(text) : words.failed(text)))} />`}
      ${state === "enabled" && html`<${Button} icon="stop" label=${words.disable} of=${name} disabled=${busy} onClick=${() => act("disable", () => words.disabled(name))} />`}
      ${skill.version > 1 && html`<${Sure} label=${words.rollBack} icon="undo" disabled=${busy} question=${words.rollBackQuestion(skill.version - 1)}
        yes=${words.rollBack} act=${() => act("rollback", ({ version }) => words.rolledBack(name, version))} />`}</div>
    ${open && html`<${Content} key=${`${skill.version} ${state} ${skill.uses}`} skill=${skill} busy=${busy} enable=${enable} />`}</li>`;
}

/** @param {{skill: Skill, busy: boolean, enable: (digest: string) => unknown}} props */
function Content({ skill, busy, enable }) {
  const given = useData(`/api/skills/${encodeURIComponent(skill.name)}`);
  const found = /** @type {Details | null} */ (given.data);
  return html`<${Pending} given=${given} what=${words.whatOne} />
    ${found && html`<${Output} label=${words.content(skill.name)} text=${found.content} />
      <dl class="facts"><dt>${words.folder}</dt><dd><code>${found.folder}</code></dd>
        ${found.source && html`<dt>${words.source}</dt><dd><code>${found.source}</code></dd>`}
        ${found.trial && html`<dt>${words.trial}</dt><dd><code>${JSON.stringify(found.trial.arguments)}</code></dd>
          <dt>${words.expected}</dt><dd><code>${found.trial.result}</code></dd>`}
        ${found.runs.length > 0 && html`<dt>${words.runs}</dt><dd>${found.runs.map((run) => html`<div key=${run.at} class="wrap"><${Icon} name=${
          run.ok ? "check" : "warning"} /> <${When} moment=${run.at} />: ${run.result.slice(0, 200)}</div>`)}</dd>`}</dl>
      ${skill.state !== "enabled" && html`<div><button class="button main" aria-label=${`${words.enable}: ${skill.name}`} disabled=${busy}
        onClick=${() => enable(found.digest)}>${words.enable}</button></div>`}`}`;
}
