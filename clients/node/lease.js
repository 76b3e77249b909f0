import fs from 'node:fs';
import { TIMER_MAX_MS } from './link.js';
import { Lost } from './outcomes.js';
import { leaseIn, quote } from './wire.js';

const RENEWAL_MAX_MS = 10_000;
const RELEASE_MAX_MS = 5_000;

const UPTIME_ERROR_MS = 100; // it is told in hundredths of a second, and to be on the safe side

// Of the machine, the time that it slept included. NaN where it cannot be told.
function uptime() {
  try {
    return parseFloat(fs.readFileSync('/proc/uptime', 'latin1')) * 1000;
  } catch {
    return NaN;
  }
}

const ahead = uptime() - performance.now();
let slept = 0;

// Milliseconds. Node's clock stands still while the machine sleeps; on Linux that time is added.
export function now() {
  const asleep = uptime() - performance.now() - ahead;
  if (asleep > slept + UPTIME_ERROR_MS) slept = asleep;
  return performance.now() + slept;
}

// A time-out that does not keep the process alive.
const later = (ms, act) => setTimeout(act, Math.min(Math.max(ms, 0), TIMER_MAX_MS)).unref();

export class Lease {
  #perform;
  #bearer;
  #holder; // not a property, nor is the signature: with the token they are a claim, and what is printed is read
  #signature;
  #ending = new AbortController();
  #overAt = Infinity;
  #renewedAt = now();
  #timers = {};

  constructor(perform, bearer, { resource, token, holder, signature, ttl }) {
    Object.assign(this, { resource, token: BigInt(token), ttl });
    this.#holder = holder;
    this.#signature = signature;
    this.#perform = perform;
    this.#bearer = bearer;
    this.reason = null;
  }

  get holder() {
    return this.#holder;
  }

  get signature() {
    return this.#signature;
  }

  // What JSON.stringify() and loggers show.
  toJSON() {
    return { resource: this.resource, token: String(this.token), ttl: this.ttl, reason: this.reason };
  }

  get isLost() {
    if (this.#overAt <= now()) this.#end('expired');
    return this.reason !== null;
  }

  get signal() {
    return this.#ending.signal;
  }

  async write(body, options) {
    return (await this.send('PUT', body, options)).verdict;
  }

  async delete(options) {
    return (await this.send('DELETE', '', options)).verdict;
  }

  async read(options) {
    const answer = await this.send('GET', '', options);
    return answer.status === 404 ? null : answer.body;
  }

  async send(method, body = '', { path = this.resource, sequence, headers, signal } = {}) {
    const fields = { ...headers, ...this.#fields() };
    if (sequence !== undefined) fields['Fencing-Sequence'] = sequence;
    const answer = await this.#perform({ side: 'data', method, target: '/' + quote(path), headers: fields,
      body: Buffer.from(body), resource: this.resource, signal });
    return { ...answer, verdict: answer.headers['fencing-verdict'] };
  }

  renew(options) {
    return this.#renew(options);
  }

  async release({ signal } = {}) {
    this.#end('ended');
    await this.#control('DELETE', undefined, { limit: RELEASE_MAX_MS, signal });
  }

  async #renew(options) {
    const ttl = this.ttl ?? RENEWAL_MAX_MS;
    const sentAt = now();
    let answer;
    try {
      answer = await this.#control('PUT', { ttl_ms: ttl }, { ...options, limit: Math.min(ttl / 3, RENEWAL_MAX_MS) });
    } catch (error) {
      if (error instanceof Lost) this.#end('ended');
      throw error;
    }
    this.extend(sentAt, leaseIn(answer));
  }

  // Counts the term from the moment before the grant or renewal was sent. A lease that was lost stays lost.
  extend(sentAt, grant) {
    this.#signature = grant.signature ?? this.#signature;
    if (this.ttl === undefined || this.isLost) return;
    this.#renewedAt = sentAt;
    this.#overAt = sentAt + (grant.expires_in_ms ?? this.ttl);
  }

  // Looks after the term, and renews in the background.
  start(isKept) {
    this.#watch();
    if (isKept) this.#renewIn(this.#renewedAt + this.ttl / 3 - now());
  }

  #watch() {
    if (!this.isLost) this.#timers.term = later(Math.ceil(this.#overAt - now()), () => this.#watch());
  }

  #renewIn(ms) {
    if (this.isLost) return;
    this.#timers.renewal = later(ms, () => this.#renew({ isBackground: true, signal: this.signal })
      .then(() => this.#renewIn(this.#renewedAt + this.ttl / 3 - now()), () => this.#renewIn(this.ttl / 20)));
  }

  #end(reason) {
    if (this.reason !== null) return;
    this.reason = reason;
    Object.values(this.#timers).forEach(clearTimeout);
    this.#ending.abort(new Lost(`${this.resource}: the lease is over`, { resource: this.resource, reason }));
  }

  #fields() {
    const fields = { 'Fencing-Token': String(this.token), 'Fencing-Holder': this.#holder };
    return this.#signature ? { ...fields, 'Fencing-Signature': this.#signature } : fields;
  }

  #control(method, wish, options) {
    const kind = wish ? { 'Content-Type': 'application/json' } : {};
    return this.#perform({ side: 'control', method, target: '/v1/leases/' + quote(this.resource),
      headers: { ...kind, ...this.#bearer, ...this.#fields() }, body: Buffer.from(wish ? JSON.stringify(wish) : ''),
      resource: this.resource, ...options });
  }
}

// What 'await using' calls. Without the symbol (before Node 18.18) compilers bring this one.
Lease.prototype[Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')] = function release() {
  return this.release().catch(() => {}); // where it fails, the lease ends with its ttl
};
