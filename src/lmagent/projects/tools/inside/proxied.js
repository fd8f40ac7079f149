// Leads `fetch`, `http` and `https` through the sandbox's proxy. Node.js does that by itself from version 24 on.
'use strict';
const http = require('http');
const https = require('https');
const net = require('net');
const tls = require('tls');

const proxy = new URL(process.env.https_proxy || process.env.HTTPS_PROXY);
const at = { host: proxy.hostname, port: Number(proxy.port) };
const direct = new http.Agent();

// Opens a tunnel to a host, and gives the socket to `done`.
function tunnel(host, port, done) {
  const name = (host.includes(':') ? '[' + host + ']' : host) + ':' + port;
  const request = http.request({ ...at, method: 'CONNECT', path: name, headers: { host: name }, agent: direct });
  request.once('connect', (response, socket) => {
    if (response.statusCode === 200) return done(null, socket);
    socket.destroy();
    done(new Error(name + ' cannot be reached: ' + response.statusCode + ' of the proxy'));
  });
  request.once('error', done);
  request.end();
}

function secured(options, done) {
  const host = options.hostname || options.host;
  tunnel(host, Number(options.port) || 443, (error, socket) => {
    if (error) return done(error);
    const servername = options.servername || (net.isIP(host) ? '' : host);
    const secure = tls.connect({ ...options, host: undefined, port: undefined, path: undefined, socket, servername });
    secure.once('secureConnect', () => done(null, secure));
    secure.once('error', done);
  });
}

class SecureAgent extends https.Agent {
  createConnection(options, done) {
    secured(options, done);
  }
}

class PlainAgent extends http.Agent {
  addRequest(request, options) {
    const host = options.hostname || options.host || 'localhost';
    const port = options.port && Number(options.port) !== 80 ? ':' + options.port : '';
    request.path = 'http://' + (host.includes(':') ? '[' + host + ']' : host) + port + request.path;
    super.addRequest(request, { ...options, ...at, hostname: at.host });
  }
}

if (Number(process.versions.node.split('.')[0]) < 24) {
  http.globalAgent = new PlainAgent();
  https.globalAgent = new SecureAgent();
  void globalThis.Headers; // it loads what `fetch` is made of
  const key = Symbol.for('undici.globalDispatcher.1');
  const usual = globalThis[key];
  if (usual) {
    const secure = new usual.constructor({ connect: secured });
    const dispatch = secure.dispatch.bind(secure);
    secure.dispatch = (options, handler) => {
      const origin = String(options.origin);
      if (origin.startsWith('https:')) return dispatch(options, handler);
      return usual.dispatch({ ...options, origin: proxy.origin, path: origin + options.path }, handler);
    };
    globalThis[key] = secure;
  }
}
