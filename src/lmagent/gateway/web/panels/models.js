// @ts-check
// The models of a server: which one new sessions use, which are in memory, and how to get more.
import { post } from "../api.js";
import { loadModels } from "../header.js";
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { complain, me, toast } from "../state.js";
import { models as words } from "../words/models.js";
import { Search, useData, useSettled } from "./data.js";
import { Downloads } from "./downloads.js";
import { Nothing } from "./kit.js";
import { Card } from "./modelcard.js";

/** @typedef {import("./modelcard.js").Model} Model */
/** @typedef {"load" | "unload" | "download"} Action */
/** @typedef {{models: Model[], current: string, provider: string, endpoint: string, vanished?: boolean, listed: string,
 *   providers: {id: string, title: string}[], actions: Action[]}} Models */

/** Let new sessions use a model; tells whether they do. @param {string} model @param {string} [provider] */
export async function setDefault(model, provider = "") {
  try {
    const { model: chosen } = await post("/api/models/select", { model_id: model, provider, sessions: "new" });
    toast(words.chosen(chosen));
    if (me.value) me.value = { ...me.value, model: chosen };
    loadModels();
    return true;
  } catch (error) {
    complain(error);
    return false;
  }
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
      <button class="button" onClick=${reload}><${Icon} name="refresh" />${words.refresh}</button></div>
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
    <button class="button" onClick=${again}><${Icon} name="refresh" />${words.refresh}</button></div></div>`;
}
