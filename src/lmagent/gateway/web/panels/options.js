// @ts-check
// A session's own options in place of the settings: sampling, the cap on a reply, instructions.
import { wanted } from "../header.js";
import { html, useEffect, useId, useState } from "../lib.js";
import { current } from "../session/session.js";
import { toast } from "../session/state.js";
import { options as words } from "../words/settings.js";
import { useData } from "./kit.js";

/** @typedef {import("../session/wire.js").SessionOptions} SessionOptions */
/** @typedef {keyof typeof words.fields} Name */

const NAMES = /** @type {Name[]} */ (Object.keys(words.fields));
const LONGEST = 8000;

/** The typed text of each option. @param {SessionOptions} held */
function typedOf(held) {
  return { ...Object.fromEntries(NAMES.map((name) => [name, held[name] === undefined ? "" : String(held[name])])), instructions: held.instructions ?? "" };
}

/** @param {import("../panels.js").PanelProps} props */
export function Panel({ session: id }) {
  const session = current.value?.id === id ? current.value : null;
  const held = (session ? session.view.value.options : wanted.value.options) ?? {};
  const [typed, setTyped] = useState(/** @type {Record<string, string>} */ (typedOf(held)));
  const [problem, setProblem] = useState({ name: "", text: "" });
  const settings = useData("/api/settings");
  const field = useId();
  const kept = JSON.stringify(held);
  useEffect(() => setTyped(typedOf(JSON.parse(kept))), [kept, id]);
  const save = async (/** @type {SessionOptions} */ options) => {
    setProblem({ name: "", text: "" });
    if (!session) {
      wanted.value = { ...wanted.value, options };
      toast(words.savedNew);
    } else if (await session.command({ type: "set_options", options })) toast(words.saved);
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    /** @type {Record<string, any>} */
    const options = {};
    for (const name of NAMES) {
      const text = (typed[name] ?? "").trim().replace(",", ".");
      if (!text) continue;
      if (!Number.isFinite(Number(text))) return setProblem({ name, text: words.notNumber(words.fields[name]) });
      options[name] = Number(text);
    }
    if (typed["instructions"]?.trim()) options["instructions"] = typed["instructions"].trim();
    save(options);
  };
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => setTyped({ ...typed, [name]: event.target.value });
  const rows = /** @type {import("./settings.js").Row[]} */ (settings.data?.settings ?? []);
  const settingOf = (/** @type {Name} */ name) => rows.find((row) => row.name === `llm_${name}`);
  return html`<form class="options" onSubmit=${submit}>
    <p class="small quiet">${session ? words.lead : words.leadNew}</p>
    <fieldset><legend>${words.sampling}</legend>
      ${NAMES.map((name) => {
        const row = settingOf(name);
        const wrong = problem.name === name;
        return html`<label key=${name} class="option"><span>${words.fields[name]}</span>
          <input class="field" value=${typed[name]} onInput=${change(name)} inputmode="decimal" autocomplete="off" aria-invalid=${wrong}
            aria-describedby=${`${field}-${name}`} />
          <span class="small quiet" id=${`${field}-${name}`}>${wrong ? html`<span class="needed" role="alert">${problem.text}</span>`
            : row && words.setting(row.value === "none" ? words.server : row.value)}</span></label>`;
      })}</fieldset>
    <label class="option wide"><span>${words.instructions}</span>
      <textarea class="field" rows="5" maxlength=${LONGEST} value=${typed["instructions"]} onInput=${change("instructions")} aria-describedby=${`${field}-about`}></textarea>
      <span class="small quiet" id=${`${field}-about`}>${words.instructionsHint}</span></label>
    <div class="row"><button class="button main">${words.save}</button>
      ${kept !== "{}" && html`<button type="button" class="button plain" onClick=${() => save({})}>${words.reset}</button>`}</div>
  </form>`;
}
