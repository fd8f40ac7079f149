// @ts-check
// The panels, one row each; a panel that is not listed is nowhere on the page.
import { part } from "./parts.js";

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
export const PANELS = [
  { id: "sessions", title: "Sessions", icon: "list", place: "side", load: () => part("./panels/sessions.js") },
  { id: "files", title: "Files", icon: "folder", place: "beside", load: () => part("./panels/files.js") },
  { id: "changes", title: "Changes", icon: "edit", place: "beside", load: () => part("./panels/changes.js"), shown: begun },
  { id: "work", title: "Tasks", icon: "tasks", place: "beside", load: () => part("./panels/work.js"), shown: begun },
  { id: "options", title: "Session settings", icon: "sliders", place: "beside", load: () => part("./panels/options.js") },
  { id: "activity", title: "Activity", icon: "pulse", place: "page", load: () => part("./panels/activity.js") },
  { id: "schedule", title: "Schedule", icon: "clock", place: "page", load: () => part("./panels/schedule.js") },
  { id: "memory", title: "Memory", icon: "pin", place: "page", load: () => part("./panels/memory.js") },
  { id: "skills", title: "Skills", icon: "file", place: "page", load: () => part("./panels/skills.js") },
  { id: "usage", title: "Usage", icon: "chart", place: "page", load: () => part("./panels/usage.js") },
  { id: "models", title: "Models", icon: "chip", place: "page", load: () => part("./panels/models.js") },
  { id: "tools", title: "Tools", icon: "tool", place: "page", load: () => part("./panels/tools.js") },
  { id: "mcp", title: "MCP servers", icon: "tree", place: "page", load: () => part("./panels/mcp.js") },
  { id: "settings", title: "Settings", icon: "sliders", place: "page", load: () => part("./panels/settings.js") },
];

/** The panels of a place that are offered now. @param {PanelRow["place"]} place @param {string} session */
export const panelsAt = (place, session) => PANELS.filter((row) => row.place === place && (row.shown?.({ session, rest: "" }) ?? true));

/** Panels about a session are not offered before it exists. @param {PanelProps} props */
function begun({ session }) {
  return session !== "";
}
