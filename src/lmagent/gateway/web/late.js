// @ts-check
// Parts of the page that are fetched when they are first needed.
import { html, useEffect, useState } from "./lib.js";
import { complain } from "./state.js";

/**
 * A component that stands for one of a module that is not there yet.
 * @param {() => Promise<any>} load gives the component
 * @returns {(props: any) => any}
 */
export function late(load) {
  return function Late(props) {
    const [Part, setPart] = useState(/** @type {any} */ (null));
    useEffect(() => {
      let here = true;
      load().then((part) => here && setPart(() => part), complain);
      return () => {
        here = false;
      };
    }, []);
    return Part && html`<${Part} ...${props} />`;
  };
}
