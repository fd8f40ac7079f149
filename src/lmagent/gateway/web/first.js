// @ts-check
// The session of the first screen: it begins with the first message, or with the first file that is put into it.
import { get, post, sessionPath } from "./api.js";

let begun = "";

/**
 * Begin it, or take the one that a file has begun.
 * @param {{mode: string, model: string, options?: import("./wire.js").SessionOptions}} wanted how it is to work; empty for as the settings say
 * @returns {Promise<string>} its id
 */
export async function beginSession({ mode, model, options }) {
  if (begun && !(await get(sessionPath(begun)).then(Boolean, () => false))) begun = ""; // deleted meanwhile
  if (!begun) {
    ({ session: begun } = await post("/api/sessions", { ...(mode && { mode }), ...(model && { model }), ...(options && { options }) }));
    return begun;
  }
  if (mode) await post(sessionPath(begun, "/commands"), { type: "set_mode", mode });
  if (model) await post(sessionPath(begun, "/commands"), { type: "set_model", model });
  if (options) await post(sessionPath(begun, "/commands"), { type: "set_options", options });
  return begun;
}

/** The next first message begins another one. */
export function leaveFirst() {
  begun = "";
}
