// @ts-check
// Every text that the page shows, by the part of the page that shows it. Nothing else on the page holds words: a check reads
// this file and latewords.js, which has the texts of what is loaded late; a translation replaces both. Texts of errors come from the
// gateway.

export const common = {
  ago: (/** @type {string} */ span) => `${span} ago`,
  ahead: (/** @type {string} */ span) => `in ${span}`,
  cancel: "Cancel",
  now: "now",
  search: "Search",
};

export const login = {};

export const shell = {
  again: "Try again",
  approvalTitle: (/** @type {string} */ title) => `${title}: needs your approval`,
  approvalWaits: (/** @type {string} */ what) => `Needs your approval: ${what}`,
  close: (/** @type {string} */ what) => `Close ${what}`,
  closeList: "Close sessions and pages",
  dismiss: "Dismiss",
  drawer: "Sessions and pages",
  home: "Back to the first screen",
  logOut: "Log out",
  messages: "Messages",
  newSession: "New session",
  noPage: "Page not found",
  noPageHint: (/** @type {string} */ id) => `There is no page “${id}”.`,
  notShown: (/** @type {string} */ what, /** @type {string} */ why) => `Cannot show ${what}: ${why}`,
  notifyBlocked: "Notifications are blocked",
  notifyBlockedFix: "Allow them in the browser's site settings.",
  notifyMe: "Notify me when it needs me or has finished",
  outcomes: {
    blocked: "Blocked",
    done: "Finished",
    error: "Failed",
    interrupted: "Stopped",
    limit: "Stopped at its limit",
    question: "Has a question",
    waiting: "Scheduled",
  },
  pages: "Pages",
  planTitle: (/** @type {string} */ title) => `${title}: plan needs approval`,
  planWaits: (/** @type {string} */ title) => `Plan needs approval: ${title}`,
  themeDark: "Colours: dark",
  themeLight: "Colours: light",
  themeSystem: "Colours: as the system",
  toMessage: "Go to message box",
  working: "Working",
};

export const welcome = {};

export const attachments = {
  add: "Add attachment",
  label: "Attachments",
  uploading: (/** @type {string[]} */ names) => `Uploading ${names.join(", ")} …`,
};

export const chat = {};

export const messages = {};

export const header = {};

export const approvals = {};

export const plans = {};

export const sessions = {
  archive: "Archive",
  archived: "Archived",
  backToAll: "All sessions",
  children: (/** @type {number} */ count) => `${count} ${count === 1 ? "sub-agent" : "sub-agents"}`,
  delete: "Delete",
  deleteQuestion: (/** @type {boolean} */ running) =>
    running ? "Delete this session? It is running and will be stopped." : "Delete this session? This cannot be undone.",
  deleted: (/** @type {string} */ title) => `Deleted “${title}”`,
  export: "Export",
  fork: "Fork",
  forksOf: (/** @type {string} */ title) => `Forks of ${title}`,
  formats: { md: "Markdown", html: "HTML", jsonl: "JSON log" },
  more: (/** @type {string} */ title) => `More about ${title}`,
  newTitle: "New title",
  noResults: (/** @type {string} */ text) => `No results for “${text}”.`,
  nothing: "No sessions yet. Send a message to start one.",
  nothingArchived: "No archived sessions.",
  older: "Older sessions",
  pin: "Pin",
  pinned: "Pinned",
  rename: "Rename",
  search: "Search sessions",
  states: {
    approval: "Needs your approval",
    blocked: "Blocked",
    done: "Done",
    error: "Failed",
    idle: "Not started",
    interrupted: "Stopped",
    limit: "Stopped at its limit",
    partial: "Partly done",
    plan: "Plan needs approval",
    question: "Has a question",
    running: "Working",
    time: "Scheduled",
  },
  title: "Sessions",
  unarchive: "Unarchive",
  unpin: "Unpin",
  untitled: "Untitled",
  what: "sessions",
};

export const activity = {};

export const schedule = {};

export const usage = {};

export const models = {};

export const tools = {};

export const settings = {};
