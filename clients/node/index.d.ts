// Locks whose writes are fenced. Times are milliseconds, tokens bigint, because they exceed 2^53.

/** What is not known is left out. */
export interface Facts {
  cause?: unknown;
  resource?: string;
  token?: bigint;
  highest?: bigint;
  retryAfter?: number;
  problem?: string;
  status?: number;
  found?: 'data' | 'control' | 'other';
  reason?: 'ended' | 'expired';
}

/** What a call can end with beside success. code is the class's name in lower case. */
export class FenceguardError extends Error {
  constructor(message: string, facts?: Facts);
  code: 'stale' | 'conflict' | 'held' | 'lost' | 'unavailable' | 'unknown' | 'misdirected' | 'unauthorized'
    | 'rejected';
}
export interface FenceguardError extends Facts {}

/** The claim was refused and nothing was written: undo, take the lock again, start over from the read. */
export class Refused extends FenceguardError {}
/** A newer token was seen (highest), the fence was closed, or an own later write overtook this one. */
export class Stale extends Refused {}
/** Another holder uses the same token: the token source issued it twice. */
export class Conflict extends Refused {}
/** Another holder has the lock. */
export class Held extends FenceguardError {}
/** The lease ended; reason is 'ended' (the server said so, or it was released) or 'expired' (its term is over). */
export class Lost extends FenceguardError {}
/** Nothing was written: there is no server, it says so, or the signal came before anything was sent. */
export class Unavailable extends FenceguardError {}
/** It may or may not have taken effect. Read before you decide; it was not repeated. */
export class Unknown extends FenceguardError {}
/** Something else answered: found. Only a guard judges, so of a write that an 'other' one answered nothing is known. */
export class Misdirected extends FenceguardError {}
/** The bearer token is missing, wrong, expired or not enough. */
export class Unauthorized extends FenceguardError {}
/** A clear no of another kind, with nothing written; problem is its name. */
export class Rejected extends FenceguardError {}

/** What is given up when the signal is aborted: a write that was sent is then Unknown. */
export interface Abortable {
  signal?: AbortSignal;
}

/** ttl: 10 s. wait: how long a lock that is held is waited for, 30 s. renew: in the background, true. */
export interface LeaseOptions extends Abortable {
  ttl?: number;
  wait?: number;
  renew?: boolean;
}

/** path: an object below the resource. sequence: rises with each write, so that a duplicate is told. */
export interface SendOptions extends Abortable {
  path?: string;
  sequence?: number | bigint;
  headers?: Record<string, string>;
}

export type Verdict = 'admitted' | 'duplicate';

export interface Answer {
  verdict: Verdict;
  status: number;
  headers: Record<string, string>;
  body: Buffer;
}

export interface Claim {
  resource: string;
  token: bigint | string;
  holder: string;
  signature?: string;
}

/**
 * A lock that is held, and renewed every third of ttl until release(), by timers that do not keep the process alive.
 * Once it is no longer known to be held it is lost, for good; whether a write is still good is the guard's to judge.
 * Its clock may stand still while the machine sleeps, because Node has no other.
 */
export class Lease {
  private constructor();
  readonly resource: string;
  readonly token: bigint;
  /** It and the signature are not shown where a lease is printed or logged: with the token they are a claim. */
  readonly holder: string;
  readonly signature?: string;
  readonly ttl?: number;
  readonly reason: 'ended' | 'expired' | null;
  /** Looks at the clock, so that it is right after the event loop was blocked, or the process stopped. */
  readonly isLost: boolean;
  /** Aborted when the lease is lost or released, with a Lost as its reason. */
  readonly signal: AbortSignal;
  /** A PUT, sent once. */
  write(body: string | Uint8Array, options?: SendOptions): Promise<Verdict>;
  /** Sent once. */
  delete(options?: SendOptions): Promise<Verdict>;
  /** A fenced read; null where there is no object. */
  read(options?: SendOptions): Promise<Buffer | null>;
  send(method: string, body?: string | Uint8Array, options?: SendOptions): Promise<Answer>;
  renew(options?: Abortable): Promise<void>;
  /** It ends the lease for this client whatever becomes of the call. */
  release(options?: Abortable): Promise<void>;
  /** Without the holder. */
  toJSON(): { resource: string; token: string; ttl?: number; reason: 'ended' | 'expired' | null };
  /** release() without its failures. */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface ClientOptions {
  data?: string;
  control?: string;
  /** The bearer token, which goes to the control side alone. */
  token?: string;
  /** Options of tls.connect, for https. */
  tls?: object;
  /** For an answer of the data side, 60 s: a write may wait in its lane. What was sent is then Unknown. */
  timeout?: number;
}

export type Body<T> = (lease: Lease) => Promise<T> | T;

export class Client {
  constructor(options?: ClientOptions);
  readonly timeout: number;
  /** Takes the lock, which is to be released. Held: it was waited for in vain. Unknown: a lease may stand. */
  acquire(resource: string, options?: LeaseOptions): Promise<Lease>;
  /** body under the lock, which is released at its end. */
  fenced<T>(resource: string, body: Body<T>): Promise<T>;
  fenced<T>(resource: string, options: LeaseOptions, body: Body<T>): Promise<T>;
  /** As fenced(); the lock is taken again after Stale or Conflict, attempts (5) times in all, and body starts over. */
  run<T>(resource: string, body: Body<T>): Promise<T>;
  run<T>(resource: string, options: LeaseOptions & { attempts?: number }, body: Body<T>): Promise<T>;
  /** A claim that was granted elsewhere, such as to 'fenceguard exec'. It is not renewed and does not expire. */
  adopt(claim: Claim): Lease;
  /** A plain read, without a claim; null where there is no object. */
  read(resource: string, options?: Abortable): Promise<Buffer | null>;
  /** Closes the kept connections. Leases stay until they are released. */
  close(): void;
}
