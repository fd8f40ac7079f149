// @ts-check
// The models of a server: which one new sessions use, which are in memory, and how to get more.
import { post, remove } from "../session/api.js";
import { loadModels } from "../header.js";
import { Icon } from "../icons.js";
import { html, useEffect, useState } from "../lib.js";
import { figure } from "../parts.js";
import { me, toast, tried } from "../session/state.js";
import { downloads as labels, models as words } from "../words/models.js";
import { Button, Nothing, Search, Section, Sure, size, useData, useSettled } from "./kit.js";

/** @typedef {"load" | "unload" | "download"} Action */
/** @typedef {{models: Model[], current: string, provider: string, endpoint: string, vanished?: boolean, listed: string,
 *   providers: {id: string, title: string}[], actions: Action[]}} Models */

/** Let new sessions use a model; tells whether they do. @param {string} model @param {string} [provider] */
export async function setDefault(model, provider = "") {
  return tried(async () => {
    const { model: chosen } = await post("/api/models/select", { model_id: model, provider, sessions: "new" });
    toast(words.chosen(chosen));
    if (me.value) me.value = { ...me.value, model: chosen };
    loadModels();
  });
}

export function Panel() {
  const [search, setSearch] = useState("");
  const looked = useSettled(search.trim(), 200);
  const [provider, setProvider] = useState("");
  const given = useData(`/api/models?provider=${provider}`);
  const found = useData(looked ? `/api/models/search?provider=${provider}&q=${encodeURIComponent(looked)}` : "", { keep: true });
  const all = /** @type {Models | null} */ (given.data);
  const models = /** @type {Model[]} */ ((looked ? found.data?.models : all?.models) ?? []);
  const reload = () => {
    given.reload();
    found.reload();
  };
  if (given.error) {
    return html`${provider && html`<button class="button" onClick=${() => setProvider("")}>${words.backToCurrent}</button>`}
      <${Down} error=${given.error} again=${reload} /><${Downloads} actions=${[]} provider="" changed=${reload} />`;
  }
  if (!all) return html`<p class="empty" role="status">${words.asking}</p>`;
  return html`<div class="row"><p class="quiet grow lead">${words.lead(html`<code>${all.endpoint}</code>`, all.provider)}
        ${all.current ? words.usesDefault(html`<strong class="wrap">${all.current}</strong>`) : words.usesAny}</p>
      <${Button} icon="refresh" label=${words.refresh} onClick=${reload} /></div>
    ${all.providers.length > 1 && html`<label class="row"><span>${words.server}</span>
      <select class="field" value=${all.listed} onChange=${(/** @type {any} */ event) => setProvider(event.target.value)}>
        ${all.providers.map(({ id, title }) => html`<option key=${id} value=${id}>${title}</option>`)}</select></label>`}
    ${all.vanished && html`<p class="notice warning" role="status"><${Icon} name="warning" /><span>${words.vanished(all.current)}</span></p>`}
    ${all.models.length > 6 && html`<${Search} label=${words.search} value=${search} change=${setSearch} />`}
    ${!all.models.length && html`<${Nothing} icon="chip" title=${words.none}>${words.noneAbout}</>`}
    ${looked && found.error && html`<${Down} error=${found.error} again=${reload} />`}
    ${looked && found.data && !models.length && html`<p class="empty">${words.noResults(looked)}</p>`}
    <ul class="bare cards">${models.map((model) => html`<${Card} key=${model.id} model=${model} current=${all.current}
      actions=${all.actions} choose=${setDefault} changed=${reload} />`)}</ul>
    ${all.models.length > 0 && html`<p class="small quiet">${words.note}</p>`}
    <${Downloads} actions=${all.actions} provider=${all.listed} server=${titleOf(all)} changed=${reload} />`;
}

/** @param {Models} all */
function titleOf({ providers, listed, provider }) {
  const title = providers.find(({ id }) => id === listed)?.title ?? "";
  return listed === "usual" ? { ollama: "Ollama", lmstudio: "LM Studio" }[provider] ?? title : title;
}

/** @param {{error: Error, again: () => void}} props */
function Down({ error, again }) {
  const { message, fix } = /** @type {{message: string, fix?: string}} */ (error);
  return html`<div class="notice warning" role="alert"><${Icon} name="warning" /><div class="grow"><strong>${words.down}</strong>
    <div>${message}</div>${fix && html`<div class="small quiet">${fix}</div>`}
    <ul class="small"><li>${words.downStart(html`<code>${me.value?.endpoint}</code>`, html`<code>lmagent server start</code>`)}</li>
      <li>${words.downDoctor(html`<code>lmagent doctor</code>`)}</li></ul>
    <${Button} icon="refresh" label=${words.refresh} onClick=${again} /></div></div>`;
}

/** @typedef {{id: string, loaded: boolean | null, context: number | null, vision: boolean | null, embeddings?: boolean,
 *   tools: boolean | null, thinking: boolean | null, quant: string, size: string, bytes: number | null}} Model */

/** @param {Model} model */
function facts(model) {
  return [
    model.loaded === false && words.notLoaded,
    model.size && words.parameters(model.size),
    model.quant,
    model.bytes && size(model.bytes),
    model.context && words.context(figure(model.context)),
    model.vision === true && words.vision,
    model.vision === false && words.textOnly,
    model.tools && words.tools,
    model.thinking && words.thinking,
    model.embeddings && words.embeddings,
  ].filter(Boolean);
}

/** @param {{model: Model, current: string, actions: string[], choose: (model: string) => Promise<boolean>, changed: () => void}} props */
export function Card({ model, current, actions, choose, changed }) {
  const [busy, setBusy] = useState("");
  const isCurrent = model.id === current || model.id === `${current}:latest`;
  const change = async (/** @type {"load" | "unload"} */ action, /** @type {string} */ doing, /** @type {string} */ done) => {
    setBusy(doing);
    await tried(async () => {
      await post(`/api/models/${action}`, { model_id: model.id });
      toast(done);
    });
    setBusy("");
    changed();
  };
  const make = async () => {
    await choose(model.id);
    changed();
  };
  const cost = model.loaded === false ? words.costUnloaded : words.cost;
  return html`<li class=${isCurrent ? "card model current" : "card model"} aria-label=${model.id}>
    <div class="grow"><h2 class="wrap">${model.id}</h2><p class="row small quiet">
      ${model.loaded === true && html`<span class="chip done"><${Icon} name="check" />${words.loaded}</span>`}
      ${facts(model).map((text) => html`<span>${text}</span>`)}</p></div>
    ${busy && html`<span class="chip busy" role="status">${busy}</span>`}
    ${!busy && model.loaded === false && actions.includes("load") && html`<button class="button"
      onClick=${() => change("load", words.loading, words.didLoad(model.id))}>${words.load}</button>`}
    ${!busy && model.loaded === true && actions.includes("unload") && html`<${Sure} label=${words.unload} question=${words.unloadQuestion}
      yes=${words.unload} act=${() => change("unload", words.unloading, words.didUnload(model.id))} />`}
    ${isCurrent ? html`<span class="chip busy"><${Icon} name="check" />${words.isDefault}</span>`
      : !model.embeddings && html`<${Sure} label=${words.setDefault} question=${cost} yes=${words.setDefaultYes} act=${make} />`}
  </li>`;
}

/** @typedef {{id: string, name: string, into: "library" | "server", provider: string, state: "running" | "done" | "stopped" | "failed",
 *   have: number, total: number, text: string, model: string, problem: string, fix: string}} Download */

const EACH = 1000;

/**
 * The downloads there are, asked for again while one runs.
 * @param {(rows: Download[]) => void} [ended] called when one that ran has ended
 */
export function useDownloads(ended = () => {}) {
  const [ran, setRan] = useState(0);
  const given = useData("/api/models/downloads", { every: ran && EACH });
  const rows = /** @type {Download[]} */ (given.data?.downloads ?? []);
  const runs = rows.filter((row) => row.state === "running").length;
  useEffect(() => {
    if (runs < ran) ended(rows);
    setRan(runs);
  }, [runs]);
  return { rows, ask: given.reload };
}

/** @param {{actions: string[], provider: string, server?: string, changed: () => void}} props */
export function Downloads({ actions, provider, server = "", changed }) {
  const { rows, ask } = useDownloads(changed);
  const direct = actions.includes("download");
  const [chosen, setInto] = useState("");
  const into = direct ? chosen || "server" : "library";
  const [name, setName] = useState("");
  const [problem, setProblem] = useState("");
  const begin = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem("");
    try {
      await post("/api/models/downloads", { name: name.trim(), into, provider: into === "server" ? provider : "" });
      toast(labels.started(name.trim()));
      setName("");
    } catch (error) {
      setProblem(/** @type {import("../session/api.js").ApiError} */ (error).words);
    }
    ask();
  };
  return html`<${Section} kind="downloads" title=${labels.heading}>
    <form class="row" onSubmit=${begin}>
      ${direct && html`<select class="field" aria-label=${labels.into} value=${into} onChange=${(/** @type {any} */ event) => setInto(event.target.value)}>
        <option value="server">${server}</option><option value="library">${labels.library}</option></select>`}
      <input class="field grow" aria-label=${labels.name} value=${name} maxlength="300" required spellcheck=${false} autocomplete="off"
        aria-describedby="download-hint download-problem" aria-invalid=${problem !== ""}
        onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      <button class="button" disabled=${!name.trim()}>${labels.begin}</button></form>
    <p class="small quiet" id="download-hint">${into === "server" ? labels.hintServer(server) : labels.hintLibrary}</p>
    <div id="download-problem" role="alert">${problem && html`<p class="notice error">${problem}</p>`}</div>
    ${rows.length > 0 && html`<ul class="bare cards" aria-label=${labels.list}>${rows.map((row) => html`<${Line} key=${row.id} row=${row} ask=${ask} changed=${changed} />`)}</ul>`}</>`;
}

/** @param {{row: Download, ask: () => void, changed: () => void}} props */
export function Line({ row, ask, changed }) {
  const act = async (/** @type {() => Promise<unknown>} */ what) => {
    await tried(what);
    ask();
  };
  const path = `/api/models/downloads/${encodeURIComponent(row.id)}`;
  const resume = () => act(() => post("/api/models/downloads", { name: row.name, into: row.into, provider: row.provider }));
  const use = async () => {
    await setDefault(row.model, row.into === "library" ? "own" : "");
    changed();
  };
  const share = row.total ? Math.floor((row.have / row.total) * 100) : 0;
  const kind = { running: "busy", done: "done", stopped: "idle", failed: "failed" }[row.state];
  const unfinished = row.state === "stopped" || row.state === "failed";
  return html`<li class="card model" aria-label=${row.name}>
    <div class="grow"><h3 class="wrap">${row.name}</h3>
      ${row.state === "running" && html`<progress aria-label=${labels.progressOf(row.name)} max="100" value=${row.total ? share : undefined}></progress>`}
      <p class="row small quiet"><span class=${`chip ${kind}`}>${labels[row.state]}</span>
        ${row.state !== "done" && row.have > 0 && html`<span>${labels.progress(size(row.have), row.total ? size(row.total) : "")}</span>`}
        ${row.state === "running" && row.total > 0 && html`<span>${labels.percent(share)}</span>`}
        ${row.state === "running" && row.text && html`<span class="wrap">${row.text}</span>`}</p>
      ${row.problem && html`<p class="small" role="status">${row.problem}${row.fix && html`<br /><span class="quiet">${row.fix}</span>`}</p>`}</div>
    ${row.state === "running" && html`<${Button} icon="stop" label=${labels.cancel} onClick=${() => act(() => post(`${path}/stop`))} />`}
    ${unfinished && html`<${Button} icon="refresh" label=${labels.resume} onClick=${resume} />
      <${Sure} label=${labels.remove} icon="trash" kind="button plain" question=${labels.removeQuestion} yes=${labels.remove} act=${() => act(() => remove(path))} />`}
    ${row.state === "done" && html`<button class="button" onClick=${use}>${labels.use}</button>
      <button class="button plain" onClick=${() => act(() => remove(path))}>${labels.dismiss}</button>`}
  </li>`;
}
