import type { Claim, Verdict } from './index.js';

/** A connection of the package pg, or what has such a query(). No pool: that runs each query on any connection. */
export interface Connection {
  query(text: string, values?: unknown[]): Promise<{ rows: any[]; command?: string }>;
  totalCount?: never;
}

/** A pool of the package pg. */
export interface Pool<C extends Connection = Connection> {
  connect(): Promise<C & { release(destroy?: boolean): void }>;
  readonly totalCount: number;
}

export interface AdmitOptions {
  sequence?: number | bigint;
}

/**
 * Begins a transaction on the connection, or on one of the pool, admits the claim, calls body with the connection, and
 * commits; answers what body did. After a failure it rolls back. Where a write of this sequence took effect before, body
 * is not called. body is not to end the transaction itself: what it had committed would be called Stale.
 *
 * What ends the session before COMMIT was sent (the next holder's drain, an administrator, the network) is Stale with
 * the problem 'session-ended': nothing was committed, and run() takes the lock again. Unknown: COMMIT was sent, and its
 * answer did not come. What body throws passes through, but for what outcome() maps.
 */
export function transaction<T, C extends Connection>(source: C | Pool<C>, claim: Claim,
  body: (connection: C) => Promise<T> | T): Promise<T | undefined>;
export function transaction<T, C extends Connection>(source: C | Pool<C>, claim: Claim, options: AdmitOptions,
  body: (connection: C) => Promise<T> | T): Promise<T | undefined>;

/**
 * Judges the claim in the open transaction, and for it. To be called before the first savepoint, before anything is
 * read that the writes depend on, and in READ COMMITTED for a claim that is newer than the fence: there it waits for
 * older transactions. 'duplicate': a write of this sequence took effect before, so nothing is to be written. TypeError:
 * it was given a pool, or no transaction is open.
 */
export function admit(connection: Connection, claim: Claim, options?: AdmitOptions): Promise<Verdict>;

/** Commits. Unknown: the connection ended before the answer, so it may have taken effect. */
export function commit(connection: Connection): Promise<void>;

/**
 * What an error of the database says about the claim: Stale, Conflict, Rejected (problem 'missing', 'implausible' or
 * 'malformed') or Unavailable. Where the server ended the session (57P01) it is Unknown, because it may be the answer to
 * COMMIT; transaction() and admit() know that it is not. Every other error, 40001 among them, is returned as it is. A
 * COMMIT is for commit(), which knows of more errors that they prove nothing.
 */
export function outcome(error: any): Error;
