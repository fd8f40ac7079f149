// @ts-check
// The agent's tools, each with its effect and its parameters.
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { tools as texts } from "../words/pages.js";
import { Nothing, Pending, Search, Table, fits, useData } from "./kit.js";

/** @typedef {{[key: string]: any}} Schema */
/** @typedef {{name: string, description: string, effect: "read" | "write" | "exec" | "net", parameters: Schema, aliases: string[], deferred: boolean}} Tool */

const ICONS = /** @type {const} */ ({ read: "search", write: "edit", exec: "tool", net: "pulse" });

export function Panel() {
  const [search, setSearch] = useState("");
  const given = useData("/api/tools");
  const tools = /** @type {Tool[]} */ (given.data?.tools ?? []);
  const fitting = tools.filter((tool) => fits(search, [tool.name, ...tool.aliases, tool.description, tool.effect]));
  return html`<p class="quiet lead">${texts.lead}</p>
    <${Search} label=${texts.search} value=${search} change=${setSearch} />
    <${Pending} given=${given} what=${texts.what} />
    ${given.data && !tools.length && html`<${Nothing} icon="tool" title=${texts.none}>${texts.noneAbout}</>`}
    ${tools.length > 0 && !fitting.length && html`<p class="empty">${texts.noResults(search)}</p>`}
    ${fitting.length > 0 && html`<p class="small quiet" role="status">${texts.count(fitting.length, tools.length)}</p>`}
    <ul class="bare cards">${fitting.map((tool) => html`<${Card} key=${tool.name} tool=${tool} />`)}</ul>`;
}

/** @param {{tool: Tool, note?: string, children?: any}} props `children` in place of the parameters */
export function Card({ tool, note, children }) {
  const [open, setOpen] = useState(false);
  const { effect } = tool;
  const [first, ...more] = tool.description.split("\n");
  return html`<li class="card tool-card">
    <button class="entry" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <${Icon} name=${open ? "down" : "right"} /><code class="name">${tool.name}</code><span class="grow cut quiet small only-wide">${open ? "" : first}</span>
      ${note && html`<span class="chip waiting">${note}</span>`}
      ${effect && html`<span class=${`chip effect ${effect}`}><${Icon} name=${ICONS[effect]} />${texts.effects[effect]}</span>`}</button>
    ${open && html`<div class="inside">
      <p class="text">${[first, ...more].join("\n")}</p>
      ${tool.aliases?.length > 0 && html`<p class="small quiet">${texts.aliases} ${tool.aliases.map((name, index) => html`${index > 0 && ", "}<code>${name}</code>`)}</p>`}
      ${tool.deferred && html`<p class="small quiet">${texts.deferred}</p>`}
      ${children ?? html`<${Parameters} schema=${tool.parameters} />`}</div>`}
  </li>`;
}

/** @param {{schema: Schema, field?: (name: string, schema: Schema, required: boolean) => any}} props `field` is the form's part for a parameter */
export function Parameters({ schema, field }) {
  const whole = resolved(schema, schema);
  const required = new Set(whole["required"] ?? []);
  const rows = Object.entries(/** @type {Record<string, Schema>} */ (whole["properties"] ?? {}));
  if (!rows.length) return html`<p class="small quiet">${texts.noParameters}</p>`;
  const told = rows.some(([, raw]) => resolved(raw, schema)["description"] || raw["default"] != null);
  return html`<${Table} label=${texts.parameters}>
    <thead><tr><th scope="col">${texts.parameter}</th><th scope="col">${texts.type}</th>${told && html`<th scope="col">${texts.meaning}</th>`}</tr></thead>
    <tbody>${rows.map(([name, raw]) => {
      const property = resolved(raw, schema);
      const otherwise = property["default"] != null && html` <span class="small quiet">${texts.otherwise(JSON.stringify(property["default"]))}</span>`;
      return html`<tr key=${name}><th scope="row"><code>${name}</code>${required.has(name) && html`<span class="needed"> ${texts.required}</span>`}</th>
        <td class="small">${typeOf(raw, schema)}<div>${field?.(name, property, required.has(name))}</div></td>${told && html`<td>${property["description"] ?? ""}${otherwise}</td>`}</tr>`;
    })}</tbody></>`;
}

/** The schema that a reference names. @param {Schema} schema @param {Schema} root @returns {Schema} */
function resolved(schema, root) {
  const name = /^#\/\$defs\/(.+)$/.exec(schema["$ref"] ?? "")?.[1];
  const found = name && root["$defs"]?.[name.replaceAll("~1", "/").replaceAll("~0", "~")];
  return found ? { ...found, ...schema } : schema;
}

const DEEP = 4;

/** A type in words: "list of {path, text}". @param {Schema} raw @param {Schema} root @param {number} [depth] @returns {string} */
function typeOf(raw, root, depth = 0) {
  const schema = resolved(raw, root);
  const several = schema["anyOf"] ?? schema["oneOf"];
  if (several) return several.map((/** @type {Schema} */ one) => typeOf(one, root, depth)).filter((/** @type {string} */ one) => one !== "null").join(texts.or);
  if (schema["enum"]) return schema["enum"].map((/** @type {unknown} */ value) => JSON.stringify(value)).join(texts.or);
  if ("const" in schema) return JSON.stringify(schema["const"]);
  if (schema["type"] === "array") return texts.listOf(depth < DEEP && schema["items"] ? typeOf(schema["items"], root, depth + 1) : texts.anything);
  if (schema["type"] === "object" && schema["properties"] && depth < DEEP) return `{${Object.keys(schema["properties"]).join(", ")}}`;
  return [schema["type"] ?? texts.anything].flat().join(texts.or);
}
