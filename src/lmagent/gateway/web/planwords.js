// @ts-check
// What a person sees of a reply that is a plan: the card shows the plan to be read, not its JSON.

const BEGINS = /[[{`]/;
const FENCES = /^```\w*\s*|\s*```\s*$/g;

/**
 * The words in front of a plan, and the plan as the model wrote it; empty where there is none.
 * @param {string} text
 * @returns {{words: string, plan: string}}
 */
export function splitPlan(text) {
  const at = text.includes('"steps"') ? text.search(BEGINS) : -1;
  if (at < 0) return { words: text, plan: "" };
  const body = text.slice(at).replace(FENCES, "");
  try {
    const plan = JSON.parse(body);
    if (Array.isArray(plan?.steps)) return { words: text.slice(0, at), plan: JSON.stringify(plan, null, 2) };
  } catch {
    // No plan alone: shown as it is.
  }
  return { words: text, plan: "" };
}

/**
 * The words in front of what may become a plan, while it is written.
 * @param {string} text
 * @returns {{words: string, writing: boolean}}
 */
export function beforePlan(text) {
  const at = text.search(BEGINS);
  return at < 0 ? { words: text, writing: false } : { words: text.slice(0, at), writing: true };
}
