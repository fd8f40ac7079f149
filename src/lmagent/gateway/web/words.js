// @ts-check
// Every text that the page shows, by the part of the page that shows it. Nothing else on the page holds words: a check reads
// this file, and a translation replaces it. Texts of errors come from the gateway.

export const common = {
  cancel: "Cancel",
  search: "Search",
};

export const login = {};

export const shell = {};

export const welcome = {};

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

export const files = {
  all: "All files",
  asPreview: "Preview",
  asText: "Text",
  attach: "Add attachment",
  attachments: "Attachments",
  back: "Back",
  brokenImage: "The browser cannot show this image.",
  clashFix: "Your text is still here. Overwrite the file with it, or reload the file.",
  copied: (/** @type {string} */ path) => `Copied: ${path}`,
  copyPath: "Copy path",
  discard: "Discard changes",
  discardQuestion: "Discard what you typed?",
  download: "Download",
  downloadFolder: (/** @type {string} */ folder) => (folder ? `Download ${folder} as ZIP` : "Download all files as ZIP"),
  dropHere: (/** @type {string} */ folder) => `Drop to upload to ${folder || "the workspace"}`,
  edit: "Edit",
  editNote: "Ctrl+S saves. Unsaved text is kept in this browser.",
  emptyFile: "The file is empty.",
  emptyFolder: "empty",
  find: "Find files by name",
  firstOnes: "not all shown",
  isMentioned: (/** @type {string} */ path) => `${path} was added to the message`,
  kinds: { link: "link", other: "special file" },
  loading: "Loading …",
  loadingAll: "Loading files …",
  mention: "Mention",
  mentionLabel: "Mention in message",
  more: "Show more",
  moreNames: "This folder has more files than are listed here. Search to find the others.",
  noCopy: "The browser does not allow copying here",
  noCopyFix: "Over plain HTTP it allows copying on this computer only.",
  noFolders: "Folders cannot be uploaded",
  noFoldersFix: "Drop the files in the folder instead.",
  noResults: (/** @type {string} */ text) => `No results for “${text}”.`,
  noText: (/** @type {string} */ size) => `This is not a text file (${size}).`,
  nothing: "No files yet",
  nothingHint: "Ask the agent to create some, or drop files here.",
  overwrite: "Overwrite",
  pageNote: "Shown in a sandbox: scripts do not run, and nothing is loaded from other places.",
  pageOf: (/** @type {string} */ path) => `Preview of ${path}`,
  refresh: "Refresh files",
  reload: "Reload file",
  reloadFile: "Reload file",
  reloadQuestion: "Discard what you typed and load the file from disk?",
  replace: "Replace",
  replaceQuestion: (/** @type {string} */ path) => `${path} already exists. Replace it? Undo brings the old file back.`,
  restored: "Your unsaved changes were restored.",
  results: "results",
  save: "Save",
  saveAnyway: "Save anyway",
  saved: (/** @type {string} */ path) => `Saved ${path}`,
  sending: (/** @type {string[]} */ names) => `Uploading ${names.join(", ")} …`,
  shownOf: (/** @type {string} */ part, /** @type {string} */ whole) => `${part} of ${whole} shown`,
  skip: "Skip",
  sureQuestion: (/** @type {string} */ why) => `${why}. Upload anyway?`,
  table: "Table",
  tableCut: (/** @type {number} */ rows, /** @type {number} */ columns) => `Only the first ${rows} rows and ${columns} columns are shown.`,
  textOf: (/** @type {string} */ path) => `Text of ${path}`,
  theFiles: "the files",
  tooLarge: (/** @type {string} */ name, /** @type {number} */ size, /** @type {number} */ most) =>
    `${name} is too large: it has ${megabytes(size)}, and an upload can have ${megabytes(most)}`,
  tooLargeFix: "Copy it into the workspace folder another way.",
  tree: "Workspace files",
  uploadAnyway: "Upload anyway",
  uploadTo: (/** @type {string} */ folder) => `Upload files to ${folder || "the workspace"}`,
  uploaded: (/** @type {number} */ count, /** @type {string} */ folder) =>
    `Uploaded ${count} ${count === 1 ? "file" : "files"} to ${folder || "the workspace"}`,
  viewAs: "Show as",
};

/** @param {number} bytes */
const megabytes = (bytes) => `${Math.ceil(bytes / 1_000_000).toLocaleString("en-US")} MB`;

export const diagrams = {
  diagram: "Diagram",
  diagramFault: (/** @type {string} */ why) => `This diagram could not be drawn: ${why}`,
  diagramSource: "Source",
  diagramTooLong: "This diagram is too long to be drawn.",
  drawing: "Drawing …",
};

export const changes = {
  counted: "lines added and removed",
  created: "new",
  deleted: "deleted",
  label: "Changes",
  layout: "Layout",
  moreLines: (/** @type {number} */ count) => `Show ${count} more ${count === 1 ? "line" : "lines"}`,
  noLines: (/** @type {string} */ what) => `${what}. No text to compare.`,
  nothing: "No changes yet",
  nothingHint: "Files that the agent writes in this session appear here, line by line.",
  nothingToUndo: "Nothing to undo",
  of: (/** @type {string} */ path) => `Changes of ${path}`,
  redo: "Redo",
  redoQuestion: "Redo the last undo?",
  redoYes: "Redo",
  redone: "Redone",
  split: "Side by side",
  undo: "Undo last turn",
  undoQuestion: "Undo the file changes of the last turn?",
  undoYes: "Undo",
  undone: "The last changes were undone",
  unified: "One column",
  what: "changes",
  whileRunning: "Available when the turn ends.",
};

export const work = {};

export const activity = {};

export const schedule = {};

export const usage = {};

export const models = {};

export const tools = {};

export const settings = {};
