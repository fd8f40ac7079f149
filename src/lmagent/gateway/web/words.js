// @ts-check
// Every text that the page shows, by the part of the page that shows it. Nothing else on the page holds words: a check reads
// this file and latewords.js, which has the texts of what is loaded late; a translation replaces both. Texts of errors come from the
// gateway.

export const common = {
  cancel: "Cancel",
  search: "Search",
};

export const login = {
  heading: "Log in",
  where: (/** @type {any} */ command) => ["The PIN is shown in the terminal where ", command, " was started."],
  pin: "PIN",
  submit: "Log in",
  retrying: (/** @type {string} */ problem) => `${problem}; trying again`,
};

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

export const welcome = {
  heading: "What shall we work on?",
  about: "The agent reads, writes and runs things in this folder, with a model on your own hardware. It asks before risky actions, records everything, and can undo its changes.",
  workspace: "Workspace",
  model: "Model",
  serversChoice: "the server's choice",
  at: (/** @type {string} */ endpoint) => `at ${endpoint}`,
  examplesHeading: "Examples",
  examples: [
    "Look around this folder and tell me what it is, and how its parts belong together.",
    "Find TODO comments and other loose ends here, and list them by how much they matter.",
    "Write a test for the part of this project that most needs one, and run it.",
  ],
  recent: "Recent sessions",
};

export const attachments = {
  add: "Add attachment",
  label: "Attachments",
};

export const chat = {
  message: "Message",
  write: "Write a message",
  ask: "Ask for something, / for commands, @ for files",
  add: "Add a message (delivered after the current step)",
  afterStep: "Delivered after the current step",
  afterTurn: "Sent when this turn ends",
  send: "Send",
  queue: "Queue",
  stop: "Stop",
  stopKey: "Stop (Esc)",
  closeAnswer: "Close the answer",
  suggestions: "Suggestions",
  dropHere: "Drop files to attach them",
  picture: "image",
  remove: (/** @type {string} */ name) => `Remove ${name}`,
  uploading: "Uploading …",
  waitingMessages: "Waiting messages",
  queued: "Queued – sent when this turn ends",
  steered: "Will be delivered after the current step",
  picturesOnly: "(images)",
  you: "You",
  sending: "Sending …",
  notSent: (/** @type {string} */ reason) => `Not sent: ${reason}`,
  discard: "Discard",
  tryAgain: "Try again",
  goOn: "Continue",
  notFound: "Session not found",
  newSession: "New session",
  untitled: "Untitled",
  loading: "Loading …",
  notShown: (/** @type {string} */ reason) => `This session cannot be shown: ${reason}`,
  reload: "Reload the page",
};

export const messages = {
  you: "You",
  agent: "Agent",
  imageOf: (/** @type {number} */ number) => `Image ${number} of your message`,
  attached: (/** @type {string} */ name) => `Attached: ${name}`,
  copy: "Copy",
  copied: "Copied",
  copyRefused: "The browser does not allow copying here.",
  copyYourself: "Select the text and copy it with the keyboard.",
  edit: "Edit message",
  editedText: "Edited message",
  editAbout: "Sends the message in a new branch. This conversation is kept, and files in the workspace stay as they are.",
  resend: "Send",
  regenerate: "Regenerate",
  branchHere: "Branch from here",
  branches: "Branches",
  previousBranch: "Previous branch",
  nextBranch: "Next branch",
  branchedFrom: "Branched from",
  branchedFromNothing: "Branched from a session that was deleted.",
  filesStay: "Files in the workspace stay as they are.",
  untitled: "Untitled",
  writingPlan: "Writing a plan …",
  planAsWritten: "The plan, as the model wrote it",
  thinking: "Thinking",
  thought: "Thought",
  level: { info: "", warning: "Warning: ", error: "Error: " },
};

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
