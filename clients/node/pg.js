// Claims in a transaction of PostgreSQL, by the package pg or what is like it. pg.d.ts describes what is exported here.

import { Conflict, Rejected, Stale, Unavailable, Unknown } from './outcomes.js';

const KINDS = { ZF001: [Stale], ZF002: [Conflict], ZF003: [Rejected, 'missing'], ZF004: [Rejected, 'implausible'],
  22023: [Rejected, 'malformed'], '55P03': [Unavailable] };

export async function admit(client, { resource, token, holder }, { sequence = null } = {}) {
  try {
    const { rows } = await client.query('select fenceguard.admit($1, $2, $3, $4) as verdict',
      [resource, String(token), holder, sequence === null ? null : String(sequence)]);
    return rows[0].verdict;
  } catch (error) {
    throw outcome(error);
  }
}

export async function commit(client) {
  let done;
  try {
    done = await client.query('commit');
  } catch (error) {
    const isKnown = error.severity !== undefined && !/^(40003|08...|57P..)$/.test(error.code);
    throw isKnown ? outcome(error) : new Unknown(`commit: ${error.message}`, { cause: error });
  }
  // What COMMIT says after a statement that failed is no error.
  if (done.command !== 'COMMIT') throw new Rejected('it was rolled back', { problem: 'aborted' });
}

export function outcome(error) {
  const [kind, problem] = KINDS[error.code] ?? [];
  if (!kind) return error;
  let told = {};
  try {
    told = JSON.parse(error.detail);
  } catch {
    // Without a detail, or with another, the numbers stay unknown.
  }
  const facts = { cause: error, resource: told.resource, problem };
  for (const number of ['token', 'highest']) if (/^\d+$/.test(told[number])) facts[number] = BigInt(told[number]);
  return new kind(error.message, facts);
}
