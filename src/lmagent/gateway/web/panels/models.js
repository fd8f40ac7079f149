// @ts-check
// The models that a server has, and the one that new sessions begin with.
import { post } from "../api.js";
import { loadModels } from "../header.js";
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { figure } from "../parts.js";
import { complain, me, toast } from "../state.js";
import { Search, useData, useSettled } from "./data.js";
import { Nothing, Sure } from "./kit.js";

/** @typedef {{id: string, loaded: boolean | null, context: number | null, vision: boolean | null, embeddings?: boolean}} Model */
/** @typedef {{models: Model[], current: string, provider: string, endpoint: string, vanished?: boolean, listed: string, providers: {id: string, title: string}[]}} Models */

export function Panel() {
  const [search, setSearch] = useState("");
  const words = useSettled(search.trim(), 200);
  const [provider, setProvider] = useState("");
  const given = useData(`/api/models?provider=${provider}`);
  const found = useData(words ? `/api/models/search?provider=${provider}&q=${encodeURIComponent(words)}` : "", { keep: true });
  const all = /** @type {Models | null} */ (given.data);
  const models = /** @type {Model[]} */ ((words ? found.data?.models : all?.models) ?? []);
  const reload = () => {
    given.reload();
    found.reload();
  };
  if (given.error) {
    return html`${provider && html`<button class="button" onClick=${() => setProvider("")}>Back to the current server</button>`}
      <${Down} error=${given.error} again=${reload} />`;
  }
  if (!all) return html`<p class="empty" role="status">Asking the model server …</p>`;
  return html`<div class="row"><p class="quiet grow lead">At <code>${all.endpoint}</code>${all.provider && ` (${all.provider})`}. New sessions begin with
        ${all.current ? html` <strong class="wrap">${all.current}</strong>` : " whatever the server has loaded"}.</p>
      <button class="button" onClick=${reload}><${Icon} name="refresh" />Ask again</button></div>
    ${all.providers.length > 1 && html`<label class="row"><span>Server</span>
      <select class="field" value=${all.listed} onChange=${(/** @type {any} */ event) => setProvider(event.target.value)}>
        ${all.providers.map(({ id, title }) => html`<option key=${id} value=${id}>${title}</option>`)}</select></label>`}
    ${all.vanished && html`<p class="notice warning" role="status"><${Icon} name="warning" />
      <span>The server does not list ${all.current} any more. Choose another one, or load it there.</span></p>`}
    ${all.models.length > 6 && html`<${Search} label="Search models" value=${search} change=${setSearch} />`}
    ${!all.models.length && html`<${Nothing} icon="chip" title="The server lists no models">Load or download one there, then ask again.</>`}
    ${words && found.error && html`<${Down} error=${found.error} again=${reload} />`}
    ${words && found.data && !models.length && html`<p class="empty">No model has “${words}”.</p>`}
    <ul class="bare cards">${models.map((model) => html`<${Card} key=${model.id} model=${model} current=${all.current} changed=${reload} />`)}</ul>
    ${all.models.length > 0 && html`<p class="small quiet">
      The choice is for new sessions, and it is kept. A session that has begun keeps its model; its header changes that,
      and then the other model has to read the whole conversation once.</p>`}`;
}

/** @param {{model: Model, current: string, changed: () => void}} props */
function Card({ model, current, changed }) {
  const isCurrent = model.id === current || model.id === `${current}:latest`;
  const choose = async () => {
    try {
      const { model: chosen } = await post("/api/models/select", { model_id: model.id, sessions: "new" });
      toast(`new sessions begin with ${chosen}`);
      if (me.value) me.value = { ...me.value, model: chosen };
      loadModels();
    } catch (error) {
      complain(error);
    }
    changed();
  };
  const cost = model.loaded === false
    ? "Begin new sessions with it? It is not loaded: the first message waits until the server has loaded it, and what is loaded now may have to go."
    : "Begin new sessions with it? Nothing that the server has in its cache for another model helps it: the first prompt is read whole.";
  return html`<li class=${isCurrent ? "card model current" : "card model"} aria-label=${model.id}>
    <div class="grow"><h2 class="wrap">${model.id}</h2><p class="row small quiet">
      ${model.loaded === true && html`<span class="chip done"><${Icon} name="check" />loaded</span>`}${model.loaded === false && html`<span>not loaded</span>`}
      ${model.context && html`<span>${figure(model.context)} tokens</span>`}${model.vision === true && html`<span>sees pictures</span>`}
      ${model.vision === false && html`<span>text only</span>`}${model.embeddings && html`<span>for embeddings: it cannot chat</span>`}</p></div>
    ${isCurrent ? html`<span class="chip busy"><${Icon} name="check" />new sessions begin with it</span>`
      : !model.embeddings && html`<${Sure} label="Use for new sessions" question=${cost} yes="Use it" act=${choose} />`}
  </li>`;
}

/** @param {{error: Error, again: () => void}} props */
function Down({ error, again }) {
  const { message, fix } = /** @type {{message: string, fix?: string}} */ (error);
  return html`<div class="notice warning" role="alert"><${Icon} name="warning" /><div class="grow"><strong>The model server cannot be asked.</strong>
    <div>${message}</div>${fix && html`<div class="small quiet">${fix}</div>`}
    <ul class="small"><li>Start LM Studio, Ollama or llama.cpp at <code>${me.value?.endpoint}</code>, or <code>lmagent server start</code>.</li>
      <li><code>lmagent doctor</code> in a terminal says what is wrong.</li></ul>
    <button class="button" onClick=${again}><${Icon} name="refresh" />Ask again</button></div></div>`;
}
