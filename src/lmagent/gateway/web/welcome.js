// @ts-check
// The first screen: what this is, how it stands with the workspace and the model, and what one might ask.
import { get } from "./api.js";
import { loadModels, models, modelsProblem } from "./header.js";
import { Icon } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";
import { sessionHref } from "./router.js";
import { me } from "./state.js";

const EXAMPLES = [
  "Look around this folder and tell me what it is, and how its parts belong together.",
  "Find TODO comments and other loose ends here, and list them by how much they matter.",
  "Write a test for the part of this project that most needs one, and run it.",
];

/** @param {{choose: (text: string) => void}} props `choose` puts a task into the message box */
export function Welcome({ choose }) {
  return html`<div class="transcript"><div class="column welcome">
    <h1>What shall we work on?</h1>
    <p class="quiet">The agent reads, writes and runs things in this folder, with a model on your own hardware. It asks before
      what could do harm, everything it does stays on record, and what it changed can be taken back.</p>
    <${Standing} />
    <h2 class="small quiet">For example</h2>
    <ul class="bare examples">${EXAMPLES.map((text) => html`<li key=${text}><button class="card example" onClick=${() => choose(text)}>${text}</button></li>`)}</ul>
    <${Recent} />
  </div></div>`;
}

function Standing() {
  useEffect(() => {
    const timer = setInterval(() => modelsProblem.peek() && !document.hidden && loadModels(), 5000);
    return () => clearInterval(timer);
  }, []);
  const here = me.value;
  const name = models.value?.current || here?.model || models.value?.models[0]?.id || "the server's choice";
  const endpoint = models.value?.endpoint || here?.endpoint || "";
  return html`<dl class="facts card standing"><dt>Workspace</dt><dd><code>${here?.workspace}</code></dd>
    <dt>Model</dt><dd>${modelsProblem.value ? html`<${NoModel} endpoint=${endpoint} />` : html`${name} <span class="quiet">${endpoint && `at ${endpoint}`}</span>`}</dd></dl>`;
}

/** @param {{endpoint: string}} props */
function NoModel({ endpoint }) {
  return html`<div class="notice warning" role="status"><${Icon} name="warning" /><div>
    <strong>The model server does not answer</strong>${endpoint && html` at <code>${endpoint}</code>`}.
    <div class="small">${modelsProblem.value}</div>
    <ul class="small"><li>Start LM Studio, Ollama or llama.cpp there, or <code>lmagent server start</code>.</li>
      <li><code>lmagent doctor</code> in a terminal says what is wrong.</li></ul>
    <button class="button" onClick=${loadModels}><${Icon} name="refresh" />Try again</button></div></div>`;
}

/** @typedef {import("./wire.js").Row} Row */

function Recent() {
  const [rows, setRows] = useState(/** @type {Row[]} */ ([]));
  useEffect(() => {
    const stop = new AbortController();
    // The list of sessions at the left says what is wrong, should something be.
    get("/api/sessions?limit=5", stop.signal).then(({ sessions }) => setRows(sessions), () => {});
    return () => stop.abort();
  }, []);
  if (!rows.length) return null;
  return html`<h2 class="small quiet">Go on with</h2>
    <ul class="bare recent">${rows.map((row) => html`<li key=${row.id}><a class="entry" href=${sessionHref(row.id)}>
      <${Icon} name="right" /><span class="cut">${row.title || row.id}</span></a></li>`)}</ul>`;
}
