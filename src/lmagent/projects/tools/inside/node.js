// Runs one call of a JavaScript tool in Node.js: node node.js CALL, a file of JSON.
// The answer goes to the private channel, so that nothing that the tool prints is taken for it.
'use strict';
const fs = require('fs');
const path = require('path');
const Module = require('module');
const common = require('./common.js');

const call = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const channel = Number(process.env.LMAGENT_CHANNEL);
const { writeSync } = fs;
const exit = process.reallyExit.bind(process);
delete process.env.LMAGENT_CHANNEL;
process.argv = [process.argv[0], call.file];

// Without this, output to a pipe waits for the event loop, and is lost at the end.
for (const name of ['stdout', 'stderr']) {
  const opened = Object.getOwnPropertyDescriptor(process, name).get;
  let stream;
  const get = () => {
    if (!stream) {
      stream = opened.call(process);
      if (stream._handle && stream._handle.setBlocking) stream._handle.setBlocking(true);
    }
    return stream;
  };
  Object.defineProperty(process, name, { configurable: true, enumerable: true, get });
}

function answer(text) {
  const data = Buffer.from(text + '\n');
  for (let at = 0; at < data.length;) at += writeSync(channel, data, at);
  exit(0);
}

const fail = error => answer(common.failure(error, call.file));

try {
  if (process.env.https_proxy || process.env.HTTPS_PROXY) require('./proxied.js');
  const loaded = new Module(call.file, null);
  loaded.filename = call.file;
  loaded.paths = Module._nodeModulePaths(path.dirname(call.file));
  loaded._compile(call.source, call.file);
  const tool = common.toolOf(loaded.exports);
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  if (call.describe) answer(common.description(tool));
  Promise.resolve(tool.execute(call.arguments)).then(value => answer(common.result(value))).catch(fail);
} catch (error) {
  fail(error);
}
