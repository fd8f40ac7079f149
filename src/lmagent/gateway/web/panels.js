// @ts-check
// The panels there are. One row each; what is not here is nowhere on the page.

/**
 * @typedef {Object} PanelProps
 * @property {string} session id of the session beside which it stands; empty for none
 * @property {string} rest the rest of the address, for the panel's own use: router.js makes addresses
 */

/**
 * @typedef {Object} PanelRow
 * @property {string} id its name in the address
 * @property {string} title heading and accessible name of its region
 * @property {import("./icons.js").IconName} icon
 * @property {"side" | "beside" | "page"} place always at the left; beside the session when asked for; instead of it
 * @property {() => Promise<{Panel: (props: PanelProps) => any}>} load its module, fetched when it is first shown
 * @property {(props: PanelProps) => boolean} [shown] whether it is offered; reads signals; always, where it is not given
 */

/** @type {PanelRow[]} */
export const PANELS = [];
