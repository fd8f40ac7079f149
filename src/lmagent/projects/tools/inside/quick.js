// The surroundings of a JavaScript tool in QuickJS: console, timers and `require` of the project's own files.
'use strict';
(() => {
  const { __print: print, __read: read, __answer: answer } = globalThis;
  const call = JSON.parse(globalThis.__call);
  for (const name of ['__print', '__read', '__answer', '__call']) delete globalThis[name];

  const shown = value => {
    if (typeof value === 'string') return value;
    if (value instanceof Error) return String(value);
    const json = typeof value === 'function' ? undefined : JSON.stringify(value);
    return json === undefined ? String(value) : json;
  };
  const log = (...values) => print(values.map(shown).join(' '));
  globalThis.console = { log, info: log, debug: log, warn: log, error: log, trace: log };

  const timers = [];
  let numbers = 0;
  globalThis.setTimeout = (run, wait = 0, ...values) => {
    timers.push({ number: ++numbers, due: Date.now() + Number(wait), run: () => run(...values) });
    return numbers;
  };
  globalThis.clearTimeout = number => {
    const at = timers.findIndex(timer => timer.number === number);
    if (at >= 0) timers.splice(at, 1);
  };
  globalThis.__next = () => timers.length ? Math.max(0, Math.min(...timers.map(timer => timer.due)) - Date.now()) : null;
  globalThis.__fire = () => {
    const due = timers.filter(timer => timer.due <= Date.now()).sort((a, b) => a.due - b.due || a.number - b.number);
    for (const timer of due) {
      clearTimeout(timer.number);
      timer.run();
    }
  };

  const cache = new Map();
  const folderOf = file => file.slice(0, file.lastIndexOf('/'));
  const joined = (folder, name) => {
    const parts = [];
    for (const part of (folder + '/' + name).split('/')) {
      if (part === '..') parts.pop();
      else if (part && part !== '.') parts.push(part);
    }
    return '/' + parts.join('/');
  };

  function load(file, source) {
    if (file.endsWith('.json')) return JSON.parse(source);
    const module = { exports: {} };
    cache.set(file, module);
    const folder = folderOf(file);
    const run = new Function('exports', 'require', 'module', '__filename', '__dirname', source);
    run.call(module.exports, module.exports, name => required(folder, String(name)), module, file, folder);
    return module.exports;
  }

  function required(folder, name) {
    if (!name.startsWith('.')) throw new Error("require('" + name + "') needs Node.js, which is not installed here");
    const base = joined(folder, name);
    for (const file of [base, base + '.js', base + '.cjs', base + '.json', base + '/index.js']) {
      if (cache.has(file)) return cache.get(file).exports;
      const source = read(file);
      if (typeof source === 'string') return load(file, source);
    }
    throw new Error("Cannot find module '" + name + "'");
  }

  const common = load('lmagent.js', call.common);
  const fail = error => answer(common.failure(error));
  try {
    const tool = common.toolOf(load(call.file, call.source));
    if (call.describe) answer(common.description(tool));
    else Promise.resolve(tool.execute(call.arguments)).then(value => answer(common.result(value))).catch(fail);
  } catch (error) {
    fail(error);
  }
})();
