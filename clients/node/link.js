// Calls by node:http, which repeats none, follows no redirect and asks no proxy.

import http from 'node:http';
import https from 'node:https';
import { Misdirected, Unavailable, Unknown } from './outcomes.js';

const CONNECT_MAX_MS = 5000;
const HEAD_BYTES_MAX = 65536;
export const TIMER_MAX_MS = 2 ** 31 - 1;

// Returns once whatever had arrived before the call was read: two turns of the loop have a whole poll between them.
const polled = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

// The calls to one side, over connections that are kept.
export class Side {
  #url;
  #http;
  #agent;
  #place;

  constructor(url, options) {
    this.#url = new URL(url);
    this.#http = this.#url.protocol === 'https:' ? https : http;
    this.#agent = new this.#http.Agent({ keepAlive: true });
    const host = this.#url.hostname.replace(/^\[|\]$/g, '');
    this.#place = { ...options, host, port: this.#url.port, autoSelectFamily: true, noDelay: true,
      maxHeaderSize: HEAD_BYTES_MAX };
  }

  get #idle() {
    return Object.values(this.#agent.freeSockets).flat();
  }

  // Sends the call {side, method, target, headers, body, limit, resource, signal, isBackground} once, limit in ms, over a
  // kept connection that the server has not closed, or a new one. Resolves to {status, headers, body}.
  async send(call, isNew) {
    await polled();
    this.#idle.filter((socket) => socket.readyState !== 'open').forEach((socket) => socket.destroy());
    const request = () => this.#http.request({ ...this.#place, method: call.method,
      path: this.#url.pathname.replace(/\/$/, '') + call.target, agent: !isNew && this.#agent,
      headers: { ...call.headers, Host: this.#url.host, 'Content-Length': call.body.length } });
    return new Exchange(call, `${this.#url.protocol}//${this.#url.host}`).run(request);
  }

  close() {
    this.#idle.forEach((socket) => socket.destroy());
  }
}

class Exchange {
  #isOver = false;
  #isConnected = false; // so that the request may have been sent
  #isAnswered = false; // by a whole head
  #timers = [];

  constructor(call, place) {
    Object.assign(this, { call, place });
  }

  run(request) {
    return new Promise((resolve, reject) => {
      Object.assign(this, { resolve, reject });
      if (this.call.signal?.aborted) return this.#fail(this.call.signal.reason);
      this.request = request().on('socket', (socket) => this.#onSocket(socket))
        .on('response', (response) => this.#onResponse(response))
        .on('error', (error) => this.#fail(error)).on('close', () => this.#fail(new Error('the connection ended')));
      this.onAbort = () => this.#abort(this.call.signal.reason);
      this.call.signal?.addEventListener('abort', this.onAbort);
      this.#endIn(this.call.limit, `no answer within ${this.call.limit} ms`);
      this.request.end(this.call.body);
    });
  }

  #endIn(ms, why) {
    const timer = setTimeout(() => this.#abort(new Error(why)), Math.min(ms, TIMER_MAX_MS));
    if (this.call.isBackground) timer.unref();
    this.#timers.push(timer);
    return timer;
  }

  #onSocket(socket) {
    if (this.call.isBackground) socket.unref();
    this.#isConnected = this.request.reusedSocket;
    if (this.#isConnected) return;
    const timer = this.#endIn(CONNECT_MAX_MS, 'no connection in time');
    socket.once(socket.encrypted ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer);
      this.#isConnected = true;
    });
  }

  #onResponse(response) {
    this.#isAnswered = true;
    const { statusCode: status, headers } = response;
    const hasLength = headers['content-length'] ?? headers['transfer-encoding'] ?? (status === 204 || status === 304
      || this.call.method === 'HEAD');
    const pieces = [];
    response.on('data', (piece) => pieces.push(piece)).on('error', (error) => this.#fail(error)).on('end', () => {
      if (!response.complete) this.#fail(new Error('the connection ended before the answer did'));
      if (!hasLength && headers['fencing-verdict']) this.#fail(new Error('an answer without a length may not be whole'));
      this.#finish(this.resolve, { status, headers, body: Buffer.concat(pieces) });
    });
  }

  async #abort(reason) {
    await polled(); // an answer that has arrived counts
    this.#fail(reason);
  }

  #fail(cause) {
    const facts = { cause, resource: this.call.resource };
    const why = cause?.message ?? cause;
    let error = this.#isConnected ? new Unknown(`no complete answer: ${why}`, facts)
      : new Unavailable(`${this.place}: ${why}`, facts);
    if (!this.#isAnswered && cause?.code?.startsWith?.('HPE_')) { // of node's parser
      error = new Misdirected('what answers speaks no HTTP', { ...facts, found: 'other' });
    }
    this.#finish(this.reject, error);
  }

  #finish(settle, value) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#timers.forEach(clearTimeout);
    this.call.signal?.removeEventListener('abort', this.onAbort);
    if (settle === this.reject) this.request?.destroy();
    settle(value);
  }
}
