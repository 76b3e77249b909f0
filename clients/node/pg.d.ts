import type { Claim, Verdict } from './index.js';

/** A connection of the package pg (not a pool), or what has such a query(). */
export interface Connection {
  query(text: string, values?: unknown[]): Promise<{ rows: any[]; command?: string }>;
}

/**
 * Judges the claim in the open transaction, and for it. To be called before the first savepoint, before anything is
 * read that the writes depend on, and in READ COMMITTED for a claim that is newer than the fence: there it waits for
 * older transactions. 'duplicate': a write of this sequence took effect before, so nothing is to be written.
 */
export function admit(connection: Connection, claim: Claim, options?: { sequence?: number | bigint }): Promise<Verdict>;

/** Commits. Unknown: the connection ended before the answer, so it may have taken effect. */
export function commit(connection: Connection): Promise<void>;

/**
 * What an error of a statement says about the claim: Stale, Conflict, Rejected (problem 'missing', 'implausible' or
 * 'malformed') or Unavailable. Every other error, 40001 among them, is returned as it is.
 */
export function outcome(error: any): Error;
