// @ts-check
// The address: `#/` is the first screen, `#/s/ID` a session, `#/s/ID/files/src` a panel beside it, `#/p/usage` a page.
import { drawer } from "./session/state.js";
import { signal } from "./lib.js";

/**
 * @typedef {Object} Route
 * @property {string} session id; empty for none
 * @property {string} panel id of the panel beside it; empty for none
 * @property {string} page id of the panel that takes the whole place; empty for none
 * @property {string} rest the rest of the address, which the panel reads
 */

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const parts = hash.replace(/^#?\/?/, "").split("/").map(decoded);
  if (parts[0] === "s") {
    const session = parts[1] === "-" ? "" : (parts[1] ?? "");
    return { session, panel: parts[2] ?? "", page: "", rest: parts.slice(3).join("/") };
  }
  if (parts[0] === "p") return { session: "", panel: "", page: parts[1] ?? "", rest: parts.slice(2).join("/") };
  return { session: "", panel: "", page: "", rest: "" };
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Where we are. */
export const route = signal(parse(location.hash));

/** Address of a session, with a panel beside it. @param {string} session @param {string} [panel] @param {string} [rest] */
export function sessionHref(session, panel = "", rest = "") {
  const tail = [panel, ...(rest ? rest.split("/") : [])].filter(Boolean).map(encodeURIComponent);
  return `#/${["s", encodeURIComponent(session || "-"), ...tail].join("/")}`;
}

/** Address of a panel that takes the whole place. @param {string} page @param {string} [rest] */
export function pageHref(page, rest = "") {
  return `#/${["p", page, ...(rest ? rest.split("/") : [])].map(encodeURIComponent).join("/")}`;
}

/** Go there. @param {string} href @param {{replace?: boolean}} [options] */
export function go(href, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  arrived();
}

function arrived() {
  const next = parse(location.hash);
  if (JSON.stringify(next) !== JSON.stringify(route.peek())) route.value = next;
  drawer.value = next.panel ? "beside" : "";
}

addEventListener("hashchange", arrived);
addEventListener("popstate", arrived);
