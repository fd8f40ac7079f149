// @ts-check
// Parts of the page that are fetched when they are first needed.
import { html, useEffect, useState } from "./lib.js";
import { toast } from "./state.js";
import { page as words } from "./words/conversation.js";

/** Say that a part is not there. */
export const unloaded = () => toast(words.unloaded, "error", words.unloadedFix);

let again = 0;

/**
 * A module of the page. A browser may remember that a fetch failed and never repeat it (Chromium 150 does), so what did
 * not come is asked for once more by an address that it does not know.
 * @param {string} path relative to this folder
 * @returns {Promise<any>}
 */
export const part = (path) => import(path).catch(() => import(`${path}?again=${++again}`));

/**
 * A component that stands for one of a module that is not there yet.
 * @param {() => Promise<any>} load gives the component
 * @param {(props: any) => any} [meanwhile] what is shown until it is there
 * @returns {(props: any) => any}
 */
export function late(load, meanwhile) {
  return function Late(props) {
    const [Part, setPart] = useState(/** @type {any} */ (null));
    useEffect(() => {
      let here = true;
      load().then((part) => here && setPart(() => part), unloaded);
      return () => {
        here = false;
      };
    }, []);
    return Part ? html`<${Part} ...${props} />` : meanwhile?.(props);
  };
}
