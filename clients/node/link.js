// Connections of our own, because the agents of node:http cannot be asked whether the server has closed a kept one.

import net from 'node:net';
import tls from 'node:tls';
import { FenceguardError, Unavailable, Unknown } from './outcomes.js';
import { encode, readAnswer } from './wire.js';

const CONNECT_MAX_MS = 5000;
export const TIMER_MAX_MS = 2 ** 31 - 1;

// Returns once whatever had arrived before the call was read: two turns of the loop have a whole poll between them.
const polled = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

class Link {
  #listener = null;

  constructor(socket) {
    this.socket = socket;
    this.isOver = false;
    socket.on('data', (piece) => this.#on(piece));
    socket.on('end', () => this.#on(null));
    socket.on('error', (error) => this.#on(null, error));
    socket.on('close', () => this.#on(null));
  }

  // What comes between two exchanges is no answer: the link is over.
  #on(piece, error) {
    if (this.#listener) this.#listener(piece, error);
    else this.close();
  }

  close() {
    this.isOver = true;
    this.socket.destroy();
  }

  // Sends the message and resolves to its answer, or rejects. The signal's end is an end without answer.
  exchange(message, reader, signal, isBackground) {
    this.socket[isBackground ? 'unref' : 'ref']();
    return new Promise((resolve, reject) => {
      const finish = (settle, value) => {
        this.#listener = null;
        signal.removeEventListener('abort', onAbort);
        if (settle === reject || !value.isKept || this.socket.writableLength > 0) this.close();
        settle(value);
      };
      const onAbort = async () => {
        await polled(); // an answer that has arrived counts
        if (this.#listener) finish(reject, new Unknown('no answer in time', { cause: signal.reason }));
      };
      this.#listener = (piece, cause) => {
        try {
          if (cause) throw new Unknown(cause.message, { cause });
          const { done, value } = reader.next(piece);
          if (done) finish(resolve, value);
        } catch (error) {
          finish(reject, error);
        }
      };
      reader.next();
      signal.addEventListener('abort', onAbort);
      this.socket.write(message);
    });
  }
}

function connect(url, options, signal) {
  return new Promise((resolve, reject) => {
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const isSecure = url.protocol === 'https:';
    const place = { host, port: Number(url.port) || (isSecure ? 443 : 80), autoSelectFamily: true, noDelay: true };
    const name = net.isIP(host) ? {} : { servername: host };
    const socket = isSecure ? tls.connect({ ...place, ...name, ...options }) : net.connect(place);
    const fail = (error) => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      socket.destroy();
      reject(error);
    };
    const onAbort = () => fail(signal.reason);
    const timer = setTimeout(() => fail(new Error('no connection in time')), CONNECT_MAX_MS);
    signal.addEventListener('abort', onAbort);
    socket.once('error', fail);
    socket.once(isSecure ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      socket.off('error', fail);
      resolve(new Link(socket));
    });
  });
}

// The kept connections to one side.
export class Links {
  #idle = [];

  constructor(url, options) {
    this.url = new URL(url);
    this.options = options;
  }

  async #take(isNew, signal) {
    if (!isNew && this.#idle.length > 0) {
      await polled();
      while (this.#idle.length > 0) {
        const link = this.#idle.pop();
        if (!link.isOver) return link;
      }
    }
    return connect(this.url, this.options, signal);
  }

  // Sends the call once, over a kept connection that the server has not closed, or a new one.
  async send(call, isNew) {
    const message = encode(call, this.url.host);
    const ending = new AbortController();
    const onAbort = () => ending.abort(call.signal.reason);
    const timer = setTimeout(() => ending.abort(new Error(`no answer within ${call.limit} ms`)),
      Math.min(call.limit, TIMER_MAX_MS));
    if (call.isBackground) timer.unref();
    call.signal?.addEventListener('abort', onAbort);
    try {
      call.signal?.throwIfAborted();
      const link = await this.#take(isNew, ending.signal).then((taken) => {
        if (!ending.signal.aborted) return taken;
        taken.close();
        throw ending.signal.reason;
      });
      const answer = await link.exchange(message, readAnswer(call.method), ending.signal, call.isBackground);
      if (!link.isOver) {
        link.socket.unref();
        this.#idle.push(link);
      }
      return answer;
    } catch (cause) {
      if (cause instanceof FenceguardError) throw Object.assign(cause, { resource: call.resource });
      const place = `${this.url.protocol}//${this.url.host}`;
      throw new Unavailable(`${place}: ${cause?.message ?? cause}`, { cause, resource: call.resource });
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener('abort', onAbort);
    }
  }

  close() {
    while (this.#idle.length > 0) this.#idle.pop().close();
  }
}
