// @ts-check
// The first screen: an introduction, the workspace and the model, missing parts, and examples.
import { agentOf, modelOf, models } from "./header.js";
import { Icon } from "./icons.js";
import { html } from "./lib.js";
import { useData } from "./panels/kit.js";
import { late } from "./parts.js";
import { sessionHref } from "./router.js";
import { me } from "./session/state.js";
import { welcome as words } from "./words/conversation.js";

const Setup = late("./setup.js", "Setup");

/** @param {{choose: (text: string) => void}} props `choose` puts a task into the message box */
export function Welcome({ choose }) {
  const agent = agentOf();
  const own = agent?.source; // of a file or a project: the examples are not for it
  return html`<div class="transcript"><div class="column welcome">
    <h1>${own ? agent.title : words.heading}</h1>
    <p class="quiet">${own ? agent.description : words.about}</p>
    <${Facts} /><${Lacking} />
    ${!own && html`<h2 class="small quiet">${words.examplesHeading}</h2>
    <ul class="bare examples">${words.examples.map((text) => html`<li key=${text}><button class="card example" onClick=${() => choose(text)}>${text}</button></li>`)}</ul>`}
    <${Recent} />
  </div></div>`;
}

/** Missing parts; the module that shows them is loaded only where something is missing. */
function Lacking() {
  const { data, error } = useData("/api/setup");
  return (error || data?.complete === false) && html`<${Setup} />`;
}

function Facts() {
  const here = me.value;
  const name = modelOf(null) || models.value?.models[0]?.id || words.serversChoice;
  const endpoint = models.value?.endpoint || here?.endpoint || "";
  return html`<dl class="facts card standing"><dt>${words.workspace}</dt><dd><code>${here?.workspace}</code></dd>
    <dt>${words.model}</dt><dd>${name} <span class="quiet">${endpoint && words.at(endpoint)}</span></dd></dl>`;
}

/** @typedef {import("./session/wire.js").Row} Row */

function Recent() {
  const rows = /** @type {Row[]} */ (useData("/api/sessions?limit=5").data?.sessions ?? []); // the list at the left shows the error
  if (!rows.length) return null;
  return html`<h2 class="small quiet">${words.recent}</h2>
    <ul class="bare recent">${rows.map((row) => html`<li key=${row.id}><a class="entry" href=${sessionHref(row.id)}>
      <${Icon} name="right" /><span class="cut">${row.title || row.id}</span></a></li>`)}</ul>`;
}
