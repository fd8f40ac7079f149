// @ts-check
// The MCP servers: their states, logins and logs, and what they offer: tools to try, resources to read, prompts to insert.
import { get, post, remove } from "../session/api.js";
import { insert } from "../composer/composer.js";
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { tried } from "../session/state.js";
import { visible } from "../session/visible.js";
import { common } from "../words/conversation.js";
import { mcp as words } from "../words/pages.js";
import { Button, Line, Nothing, Output, Pending, Toggle, size, useAct, useData } from "./kit.js";
import { Card, Parameters } from "./tools.js";

/** @typedef {import("./tools.js").Schema} Schema */
/** @typedef {{state: "begun" | "waiting" | "done" | "failed", address: string, code: string, text: string}} LoginState */
/** @typedef {"tools" | "resources" | "prompts"} Kind */
/** @typedef {{name: string, status: keyof typeof words.states, reason: string, fix: string, confinement: string, target: string, login: LoginState | null} & Record<Kind, number | null>} Server */
/** @typedef {{name: string, description: string, parameters: Schema, digest: string, fault: string, changed: boolean}} Tool */
/** @typedef {{uri: string, name: string, description: string, mime: string, template: boolean}} Resource */
/** @typedef {{name: string, description: string, arguments: [string, boolean][], command: string}} Prompt */
/** @typedef {{kind: "text" | "image" | "file", mime: string, size: number, text: string, image: string}} Content */

/** @type {Record<string, string>} */
const CHIPS = { ready: "done", starting: "busy", failed: "failed", login: "waiting", untrusted: "waiting" };
const KINDS = /** @type {const} */ (["tools", "resources", "prompts"]);
const LIVE = { every: 2000 };

export function Panel() {
  const given = useData("/api/mcp", LIVE);
  const { servers, problems } = /** @type {{servers: Server[], problems: string[]}} */ (given.data ?? { servers: [], problems: [] });
  return html`<p class="quiet lead">${words.lead}</p>
    <${Pending} given=${given} what=${words.what} />
    ${problems.map((problem) => html`<p key=${problem} class="notice warning">${visible(problem)}</p>`)}
    ${given.data && !servers.length && html`<${Nothing} icon="tree" title=${words.none}>${words.noneAbout(html`<code>lmagent mcp add</code>`)}</>`}
    <ul class="bare cards">${servers.map((server) => html`<${Row} key=${server.name} server=${server} changed=${given.reload} />`)}</ul>`;
}

/** @param {{server: Server, changed: () => void}} props */
function Row({ server, changed }) {
  const [open, setOpen] = useState("");
  const [busy, run] = useAct(changed);
  const { name, status, reason, login } = server;
  const toggle = (/** @type {Kind | "log"} */ part, label = words[part]) => html`<${Toggle} label=${label} of=${name} open=${open === part}
    flip=${() => setOpen(open === part ? "" : part)} />`;
  const button = (/** @type {"login" | "restart"} */ verb, /** @type {any} */ icon, kind = "") => html`<${Button} icon=${icon} label=${words[verb]} of=${name}
    kind=${kind} disabled=${busy} onClick=${() => run(() => post(`/api/mcp/${verb}`, { server: name }))} />`;
  const asks = status === "login";
  return html`<li class="card job" aria-label=${name}>
    <div class="row"><h2 class="grow wrap"><code>${name}</code></h2><span class=${`chip ${CHIPS[status] ?? ""}`}>${words.states[status]}</span></div>
    ${reason && html`<p class="small wrap">${visible(asks ? reason : [reason, server.fix].filter(Boolean).join(" → "))}</p>`}
    <p class="small quiet wrap"><code>${visible(server.target)}</code> · ${words.mayDo} ${visible(server.confinement)}</p>
    ${login && html`<${Login} server=${name} login=${login} busy=${busy} run=${run} />`}
    <div class="row">${asks && !login?.state.match(/begun|waiting/) && button("login", "shield", "main")}
      ${KINDS.map((kind) => server[kind] !== null && (server[kind] || kind === "tools") && toggle(kind, words.counted(words[kind], server[kind])))}
      ${toggle("log")}${status !== "disabled" && status !== "untrusted" && button("restart", "refresh")}</div>
    ${open === "log" ? html`<${Log} name=${name} />` : open && html`<${Offer} key=${open} name=${name} kind=${open} />`}</li>`;
}

/** A login: the page to open, or the code to enter there; then how it ended. @param {{server: string, login: LoginState, busy: boolean, run: (act: () => unknown) => void}} props */
function Login({ server, login: { state, address, code, text }, busy, run }) {
  if (state !== "waiting") return html`<p class=${state === "failed" ? "notice error" : "small"} role="status">${visible(text) || words[state]}</p>`;
  const give = (/** @type {string} */ given) => tried(() => post("/api/mcp/login/address", { server, address: given }));
  return html`<div class="section" role="group" aria-label=${words.loginTo(server)}>
    <p role="status">${code ? html`${words.enter} <strong><code>${visible(code)}</code></strong>` : words.opens}</p>
    <div class="row"><a class="button main" href=${address} target="_blank" rel="noopener noreferrer"><${Icon} name="right" />${words.openPage}</a>
      <button class="button plain" disabled=${busy} onClick=${() => run(() => remove(`/api/mcp/login?server=${encodeURIComponent(server)}`))}>${common.cancel}</button></div>
    <p class="small quiet wrap">${visible(address.split("?")[0] ?? "")}</p>
    ${!code && html`<${Line} label=${words.address} yes=${words.continue} most=${16000} save=${give} />`}
    ${text && html`<p class="small needed" role="alert">${visible(text)}</p>`}</div>`;
}

/** The tools, resources or prompts of a server. @param {{name: string, kind: Kind}} props */
function Offer({ name, kind }) {
  const given = useData(`/api/mcp/server?server=${encodeURIComponent(name)}`, LIVE);
  const rows = given.data?.[`offered_${kind}`];
  const Inside = { tools: Try, resources: Look, prompts: Insert }[kind];
  return html`<${Pending} given=${given} what=${words.whatOffer} />
    <ul class="bare cards">${rows?.map((/** @type {Tool & Resource & Prompt} */ row) => html`<${Card} key=${row.uri ?? row.name}
      tool=${{ ...row, name: row.uri ?? row.name, description: visible(row.description || (row.uri && row.name) || "") }} note=${row.fault ? words.broken : row.changed && words.changed}>
      <${Inside} server=${name} row=${row} changed=${given.reload} /></>`)}</ul>`;
}

/** A form of the parameters, and the result of the call. @param {{server: string, row: Tool, changed: () => void}} props */
function Try({ server, row: tool, changed }) {
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
        setResult(is_error ? words.failedCall(text) : text);
      } catch (error) {
        if (/** @type {import("../session/api.js").ApiError} */ (error).code !== "changed") throw error;
        setChange(/** @type {import("../session/api.js").ApiError} */ (error).words);
      }
    });
  };
  if (tool.fault) return html`<p class="notice warning">${words.fault(visible(tool.fault))}</p>`;
  return html`${tool.changed && html`<p class="notice warning">${words.changedAbout}</p>`}
    <form class="section" onSubmit=${call}><${Parameters} schema=${tool.parameters} field=${field} />
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

/** Read a resource, and show it as data of its server. @param {{server: string, row: Resource}} props */
function Look({ server, row: { uri, mime, template } }) {
  const [parts, setParts] = useState(/** @type {Content[] | null} */ (null));
  const [busy, run] = useAct();
  const look = (/** @type {any} */ event) => {
    event.preventDefault();
    const query = new URLSearchParams({ server, uri: event.target.elements.uri?.value ?? uri });
    run(async () => setParts((await get(`/api/mcp/resource?${query}`)).parts));
  };
  return html`<form class="row" onSubmit=${look}>${template && html`<input class="field grow" name="uri" aria-label=${words.fill} defaultValue=${uri} autocomplete="off" spellcheck=${false} />`}
      <button class="button" disabled=${busy}>${words.look}</button><span class="small quiet">${visible(mime)}</span></form>
    ${parts && html`<p class="small quiet" role="status">${words.data(server)}</p>`}
    ${parts?.map(({ kind, mime: type, size: length, text, image }) => kind === "image" ? html`<img class="picture" src=${`data:${type};base64,${image}`} alt=${words.contentOf(uri)} />`
      : kind === "file" ? html`<p class="small">${words.file(visible(type), size(length))}</p>`
        : html`<${Output} label=${words.contentOf(uri)} text=${text} />${text.length < length && html`<p class="small quiet">${words.cut(text.length, length)}</p>`}`)}`;
}

/** A prompt's arguments, and the way into the message. @param {{row: Prompt}} props */
function Insert({ row: { arguments: known, command } }) {
  const line = [`/${command}`, ...known.filter(([, required]) => required).map(([name]) => `${name}=`)].join(" ");
  return html`<p class="small">${known.length ? words.arguments : words.noArguments} ${known.map(([name, required]) => html`<code>${visible(name)}</code> ${required && words.required} `)}</p>
    ${command && html`<div class="row"><${Button} icon="edit" label=${words.insert} onClick=${() => insert(line)} /><code class="small wrap">${line}</code></div>`}`;
}

/** @param {{name: string}} props */
function Log({ name }) {
  const given = useData(`/api/mcp/log?server=${encodeURIComponent(name)}`, LIVE);
  return html`<${Pending} given=${given} what=${words.whatLog} />
    ${given.data && html`<${Output} label=${words.logOf(name)} text=${given.data.lines.join("\n") || words.noLog} />`}`;
}
