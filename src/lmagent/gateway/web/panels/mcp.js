// @ts-check
// The MCP servers: their states, their tools with a form to try each, their logs.
import { post } from "../session/api.js";
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { visible } from "../session/visible.js";
import { mcp as words } from "../words/pages.js";
import { Nothing, Output, Pending, Toggle, useAct, useData } from "./kit.js";
import { Card, Parameters } from "./tools.js";

/** @typedef {import("./tools.js").Schema} Schema */
/** @typedef {{name: string, status: keyof typeof words.states, reason: string, fix: string, confinement: string, target: string, tools: number | null}} Server */
/** @typedef {{name: string, description: string, parameters: Schema, digest: string}} Tool */

/** @type {Record<string, string>} */
const CHIPS = { ready: "done", starting: "busy", failed: "failed", login: "waiting", untrusted: "waiting" };
const LIVE = { every: 2000 };

export function Panel() {
  const given = useData("/api/mcp", LIVE);
  const { servers, problems } = /** @type {{servers: Server[], problems: string[]}} */ (given.data ?? { servers: [], problems: [] });
  return html`<p class="quiet lead">${words.lead}</p>
    <${Pending} given=${given} what=${words.what} />
    ${problems.map((problem) => html`<p key=${problem} class="notice warning">${visible(problem)}</p>`)}
    ${given.data && !servers.length && html`<${Nothing} icon="tool" title=${words.none}>${words.noneAbout(html`<code>lmagent mcp add</code>`)}</>`}
    <ul class="bare cards">${servers.map((server) => html`<${Row} key=${server.name} server=${server} changed=${given.reload} />`)}</ul>`;
}

/** @param {{server: Server, changed: () => void}} props */
function Row({ server, changed }) {
  const [open, setOpen] = useState("");
  const [busy, run] = useAct(changed);
  const { name, status, reason } = server;
  const toggle = (/** @type {"tools" | "log"} */ part) => html`<${Toggle} label=${words[part]} of=${name} open=${open === part}
    flip=${() => setOpen(open === part ? "" : part)} />`;
  return html`<li class="card job" aria-label=${name}>
    <div class="row"><h2 class="grow wrap"><code>${name}</code></h2><span class=${`chip ${CHIPS[status] ?? ""}`}>${words.states[status]}</span></div>
    ${reason && html`<p class="small wrap">${visible(`${reason} ${server.fix}`)}</p>`}
    <p class="small quiet wrap"><code>${visible(server.target)}</code> · ${words.mayDo} ${visible(server.confinement)}</p>
    <div class="row">${server.tools !== null && toggle("tools")}${toggle("log")}
      <button class="button" aria-label=${`${words.restart}: ${name}`} disabled=${busy}
        onClick=${() => run(() => post("/api/mcp/restart", { server: name }))}><${Icon} name="refresh" />${words.restart}</button></div>
    ${open === "tools" && html`<${Tools} name=${name} />`}
    ${open === "log" && html`<${Log} name=${name} />`}</li>`;
}

/** @param {{name: string}} props */
function Tools({ name }) {
  const given = useData(`/api/mcp/server?server=${encodeURIComponent(name)}`, LIVE);
  return html`<${Pending} given=${given} what=${words.whatTools} />
    <ul class="bare cards">${given.data?.offered_tools.map((/** @type {Tool} */ tool) => html`<${Card} key=${tool.name}
      tool=${{ ...tool, description: visible(tool.description) }}><${Try} server=${name} tool=${tool} changed=${given.reload} /></>`)}</ul>`;
}

/** A form of the parameters, and the result of the call. @param {{server: string, tool: Tool, changed: () => void}} props */
function Try({ server, tool, changed }) {
  const [busy, run] = useAct(changed);
  const [result, setResult] = useState("");
  const [change, setChange] = useState("");
  const call = (/** @type {any} */ event) => {
    event.preventDefault();
    run(async () => {
      const fields = [...event.target.elements].filter(({ name, value }) => name && value);
      const given = Object.fromEntries(fields.map(({ name, value, dataset }) => [name, dataset.json === "true" ? read(name, value) : value]));
      const body = { server, tool: tool.name, digest: tool.digest, arguments: given, confirmed: change !== "" };
      try {
        const { is_error, text } = await post("/api/mcp/call", body);
        setChange("");
        setResult(is_error ? words.failed(text) : text);
      } catch (error) {
        if (/** @type {import("../session/api.js").ApiError} */ (error).code !== "changed") throw error;
        setChange(/** @type {import("../session/api.js").ApiError} */ (error).words);
      }
    });
  };
  return html`<form class="section" onSubmit=${call}><${Parameters} schema=${tool.parameters} field=${field} />
    ${change && html`<${Output} label=${words.change} text=${change} />`}
    <div><button class="button" disabled=${busy}>${change ? words.callChanged : words.call}</button></div></form>
    ${result && html`<${Output} label=${words.result(tool.name)} text=${result} />`}`;
}

/** @param {string} name @param {string} text */
function read(name, text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(words.notJson(name));
  }
}

/** The field of a parameter: JSON, but for text; a list where the values are known. @param {string} name @param {Schema} schema @param {boolean} required */
function field(name, schema, required) {
  const values = schema["type"] === "boolean" ? [true, false] : schema["enum"];
  const named = { name, required, "aria-label": name, "data-json": schema["type"] !== "string" && !values?.every(isText) };
  return values ? html`<select class="field" ...${named}><option />${values.map((/** @type {unknown} */ value) => html`<option>${isText(value) ? value : JSON.stringify(value)}</option>`)}</select>`
    : html`<input class="field" autocomplete="off" ...${named} />`;
}

/** @param {unknown} value */
function isText(value) {
  return typeof value === "string";
}

/** @param {{name: string}} props */
function Log({ name }) {
  const given = useData(`/api/mcp/log?server=${encodeURIComponent(name)}`, LIVE);
  return html`<${Pending} given=${given} what=${words.whatLog} />
    ${given.data && html`<${Output} label=${words.logOf(name)} text=${given.data.lines.join("\n") || words.noLog} />`}`;
}
