// @ts-check
// Every text that the page shows, by the part of the page that shows it. Nothing else on the page holds words: a check reads
// this file, and a translation replaces it. Texts of errors come from the gateway. Those of pages that a conversation does
// without are in panels/*words.js, which are loaded with them.

export const common = {
  cancel: "Cancel",
};

export const login = {
  heading: "Log in",
  where: (/** @type {any} */ command) => ["The PIN is shown in the terminal where ", command, " was started."],
  pin: "PIN",
  submit: "Log in",
  wrong: "Wrong PIN. It was shown in the terminal when lmagent started.",
  retrying: (/** @type {string} */ problem) => `${problem}; trying again`,
};

export const shell = {};

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

export const gone = {
  heading: "Session not found.",
  about: "It may have been deleted in another window or in a terminal.",
  unsent: "Your unsent text. It is moved to the new session:",
  begin: "New session",
};

export const chat = {};

export const messages = {};

export const header = {};

export const approvals = {};

export const plans = {};

export const sessions = {};

export const files = {};

export const changes = {};

export const work = {};

export const data = {
  loading: (/** @type {string} */ what) => `Loading ${what} …`,
  failed: (/** @type {string} */ what, /** @type {string} */ problem) => `Cannot show ${what}: ${problem}`,
  again: "Try again",
};
