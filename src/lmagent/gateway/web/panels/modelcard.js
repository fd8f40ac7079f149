// @ts-check
// One model: what is known of it, and what can be done with it.
import { post } from "../api.js";
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { figure } from "../parts.js";
import { complain, toast } from "../state.js";
import { models as words } from "../words/models.js";
import { size, Sure } from "./kit.js";

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
    try {
      await post(`/api/models/${action}`, { model_id: model.id });
      toast(done);
    } catch (error) {
      complain(error);
    }
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
