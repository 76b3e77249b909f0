// Locks whose writes are fenced. index.d.ts describes what is exported here.

import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Lease, now } from './lease.js';
import { Side } from './link.js';
import { Conflict, Held, Lost, Stale, Unavailable, Unknown } from './outcomes.js';
import { isRead, judge, leaseIn, quote } from './wire.js';

export * from './outcomes.js';
export { Lease };

const WAIT_MAX_MS = 600_000;
const ANSWER_MAX_MS = 10_000; // of the control side
const DATA_ANSWER_MAX_MS = 60_000; // a write may wait in its lane
const PAUSE_MS = 100;

const isOneOf = (error, ...kinds) => kinds.some((kind) => error instanceof kind);

// The same outcome as another kind.
const as = (kind, { message, cause, resource }) => new kind(message, { cause, resource });

export class Client {
  #sides;
  #bearer;

  constructor({ data = 'http://127.0.0.1:7420', control = 'http://127.0.0.1:7421', token, tls,
    timeout = DATA_ANSWER_MAX_MS } = {}) {
    if (!(timeout > 0)) throw new RangeError(`timeout is a number of milliseconds above 0, not ${timeout}`);
    this.timeout = timeout;
    this.#sides = { data: new Side(data, tls), control: new Side(control, tls) };
    this.#bearer = token ? { Authorization: `Bearer ${token}` } : {};
  }

  async acquire(resource, { ttl = 10_000, wait = 30_000, renew = true, signal } = {}) {
    const holder = randomBytes(16).toString('hex');
    const overAt = now() + wait;
    let isUncertain = false;
    for (;;) {
      try {
        const lease = await this.#ask(resource, holder, ttl, Math.max(0, overAt - now()), signal);
        lease.start(renew);
        return lease;
      } catch (error) {
        const left = overAt - now();
        const isFirstUnknown = error instanceof Unknown && !isUncertain;
        isUncertain ||= error instanceof Unknown;
        const isAskedAgain = isOneOf(error, Held, Lost, Unavailable, Unknown) && (left > 0 || isFirstUnknown);
        if (!isAskedAgain || signal?.aborted) {
          throw isUncertain && error instanceof Unavailable ? as(Unknown, error) : error;
        }
        const wish = error instanceof Unavailable ? error.retryAfter || PAUSE_MS : PAUSE_MS;
        // An abort ends the pause; the next call then says so.
        await pause(Math.max(PAUSE_MS, Math.min(wish, left)), undefined, { signal }).catch(() => {});
      }
    }
  }

  async #ask(resource, holder, ttl, wait, signal) {
    const wish = { resource, ttl_ms: ttl, wait_ms: Math.round(Math.min(wait, WAIT_MAX_MS)), holder };
    const sentAt = now();
    const answer = await this.#perform({ side: 'control', method: 'POST', target: '/v1/leases',
      headers: { 'Content-Type': 'application/json', ...this.#bearer }, body: Buffer.from(JSON.stringify(wish)),
      limit: wait + ANSWER_MAX_MS, resource, signal });
    const grant = leaseIn(answer);
    const lease = this.#lease({ ...grant, resource, ttl });
    lease.extend(sentAt, grant);
    if (answer.status === 200 || now() - sentAt > ttl / 3) {
      await lease.renew({ signal }).catch((error) => {
        if (!isOneOf(error, Unavailable, Unknown)) throw error; // else the term that is known stands
      });
    }
    return lease;
  }

  #lease(claim) {
    return new Lease((call) => this.#perform(call), this.#bearer, claim);
  }

  async fenced(resource, options, body = options) {
    const lease = await this.acquire(resource, options === body ? {} : options);
    try {
      return await body(lease);
    } finally {
      await lease.release().catch(() => {}); // where it fails, the lease ends with its ttl
    }
  }

  async run(resource, options, body = options) {
    const { attempts = 5, ...rest } = options === body ? {} : options;
    for (let attempt = 1; ; ++attempt) {
      try {
        return await this.fenced(resource, rest, body);
      } catch (error) {
        if (attempt >= attempts || !isOneOf(error, Stale, Conflict)) throw error;
      }
    }
  }

  adopt({ resource, token, holder, signature }) {
    return this.#lease({ resource, token, holder, signature });
  }

  async read(resource, { signal } = {}) {
    const answer = await this.#perform({ side: 'data', method: 'GET', target: '/' + quote(resource), headers: {},
      body: Buffer.alloc(0), resource, signal });
    return answer.status === 404 ? null : answer.body;
  }

  // Sends the call once, a read once more where no complete answer came, and judges the answer.
  // The time limit of the data side is the client's.
  async #perform(asked) {
    const call = { limit: this.timeout, ...asked };
    const side = this.#sides[call.side];
    const answer = await side.send(call, false).catch((error) => {
      if (!isRead(call) || !(error instanceof Unknown)) throw error;
      return side.send(call, true).catch((again) => {
        throw again instanceof Unknown ? as(Unavailable, again) : again;
      });
    });
    judge(call, answer);
    return answer;
  }

  close() {
    Object.values(this.#sides).forEach((side) => side.close());
  }
}
