// What node.js and quick.py share: the tool in a module's exports, and the answers that lmagent reads.
'use strict';

function toolOf(exported, file) {
  const tool = exported && exported.default && !exported.execute ? exported.default : exported;
  if (!tool || typeof tool.execute !== 'function') throw new Error('it exports no function execute');
  return tool;
}

function plain(key, value) {
  return typeof value === 'bigint' ? String(value) : value;
}

function result(value) {
  if (value === undefined) return JSON.stringify({});
  if (typeof value === 'string') return JSON.stringify({ text: value });
  const json = JSON.stringify(value, plain);
  if (json === undefined) return failure(new Error('its result is a ' + typeof value + ', which is no JSON'));
  const isError = value !== null && typeof value === 'object' && typeof value.error === 'string' && value.error;
  return isError && Object.keys(value).length === 1
    ? JSON.stringify({ error: value.error })
    : JSON.stringify(isError ? { error: json } : { json });
}

function failure(error, file) {
  const known = error && typeof error === 'object' && 'message' in error;
  const text = known ? (error.name || 'Error') + ': ' + error.message : String(error);
  const stack = known && typeof error.stack === 'string' ? error.stack : '';
  const at = file ? stack.split(file + ':')[1] : undefined;
  const line = at && /^\d+/.exec(at);
  return JSON.stringify({ error: line ? text + ' (line ' + line[0] + ')' : text });
}

function description(tool) {
  const parameters = tool.parameters === undefined ? null : tool.parameters;
  const text = value => value === undefined || value === null ? '' : String(value);
  return JSON.stringify({
    name: text(tool.name), description: text(tool.description), parameters, execute: String(tool.execute),
  });
}

module.exports = { toolOf, result, failure, description };
