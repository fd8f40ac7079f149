// @ts-check
// Every text that the page shows, by the part of the page that shows it. Nothing else on the page holds words: a check reads
// this file, and a translation replaces it. Texts of errors come from the gateway.

export const common = {
  cancel: "Cancel",
};

export const login = {};

export const shell = {};

export const welcome = {};

export const chat = {};

export const messages = {};

export const header = {};

export const approvals = {};

export const plans = {};

export const sessions = {};

export const files = {};

export const changes = {};

export const work = {};

export const activity = {};

export const schedule = {};

export const usage = {};

export const models = {};

export const tools = {};

export const settings = {};
