// Claims in a transaction of PostgreSQL, by the package pg or what is like it. pg.d.ts describes what is exported here.

import { Conflict, FenceguardError, Rejected, Stale, Unavailable, Unknown } from './outcomes.js';

const ROLLBACK_MAX_MS = 5000;
const KINDS = { ZF001: [Stale], ZF002: [Conflict], ZF003: [Rejected, 'missing'], ZF004: [Rejected, 'implausible'],
  22023: [Rejected, 'malformed'], '55P03': [Unavailable] };
// The table 'In a transaction of PostgreSQL' of clients/README.md. The server ended the session: before COMMIT was sent,
// nothing was committed.
const ENDED = /^(57P0[1-5]|25P0[34])$/;
// Likewise, or the network may have.
const LOST = /^(57P0.|25P0[34]|08...|E(CONN(RESET|ABORTED|REFUSED)|PIPE|TIMEDOUT|HOSTUNREACH|NETUNREACH)|ERR_STREAM_.+)$/;
// What pg says without a code of its own.
const LOST_WORDS = /^(Connection terminated|Connection ended|Client has encountered a connection error|Client was closed|Query read timeout)/;
// Of an answer to COMMIT: these do not prove a rollback.
const UNPROVEN = /^(40003|08...|25P04|57P..|58...|XX...)$/;

const isPool = (source) => typeof source.connect === 'function' && typeof source.totalCount === 'number';

export async function admit(client, { resource, token, holder }, { sequence = null } = {}) {
  if (isPool(client)) {
    throw new TypeError('admit() takes the client whose transaction is open: a pool runs each query on any connection,'
      + ' so that the claim would guard nothing. Use pool.connect(), or transaction(pool, …)');
  }
  let verdict;
  try {
    const { rows } = await client.query('select fenceguard.admit($1, $2, $3, $4) as verdict',
      [resource, String(token), holder, sequence === null ? null : String(sequence)]);
    verdict = rows[0].verdict;
  } catch (error) {
    throw isLost(error) ? endedInside(error, { resource, token }) : outcome(error);
  }
  if (verdict === 'admitted' && !await isInTransaction(client)) {
    throw new TypeError('admit() belongs into the transaction that writes, and none is open: send BEGIN first');
  }
  return verdict;
}

// An admission that was a transaction of its own guards nothing. Every admission assigns its transaction a number.
async function isInTransaction(client) {
  const status = client.getTransactionStatus?.(); // of pg 8.19 and later
  if (status) return status !== 'I';
  const { rows } = await client.query('select pg_catalog.pg_current_xact_id_if_assigned() is not null as is_open');
  return rows[0].is_open;
}

export async function transaction(source, claim, options, body = options) {
  const client = isPool(source) ? await source.connect() : source;
  let ended = null; // what the client told of its session's end
  const onError = (error) => {
    ended ??= error;
  };
  client.on?.('error', onError);
  let isClean = false; // the next user can take the connection
  try {
    await begin(client, claim);
    let value;
    try {
      const verdict = await admit(client, claim, options === body ? {} : options);
      if (verdict === 'admitted') value = await body(client);
      if (ended) throw ended;
    } catch (error) {
      isClean = !ended && await rollback(client);
      if (error instanceof FenceguardError) throw error;
      throw ENDED.test(error?.code) || !isClean && (error === ended || isLost(error)) ? endedInside(error, claim) : outcome(error);
    }
    try {
      await commit(client);
      isClean = true;
    } catch (error) {
      isClean = !(error instanceof Unknown);
      throw error;
    }
    return value;
  } finally {
    client.off?.('error', onError);
    if (client !== source) client.release(!isClean);
  }
}

async function begin(client, { resource }) {
  if ((client.getTransactionStatus?.() ?? 'I') !== 'I') {
    throw new TypeError('a transaction is open already: transaction() begins and ends its own');
  }
  try {
    await client.query('begin');
  } catch (error) {
    throw isLost(error) ? new Unavailable(`begin: ${error.message}`, { cause: error, resource }) : error;
  }
}

// True once the server has answered, so that its session is alive.
async function rollback(client) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ROLLBACK_MAX_MS, false);
  });
  const done = await Promise.race([client.query('rollback').then(() => true, () => false), late]);
  clearTimeout(timer);
  return done;
}

export async function commit(client) {
  // Success with this warning: the wait for the synchronous standby was cancelled. Its words depend on the locale.
  let warning = null;
  const onNotice = (notice) => {
    if (notice.routine === 'SyncRepWaitForLSN') warning ??= notice;
  };
  client.on?.('notice', onNotice);
  let done;
  try {
    done = await client.query('commit');
  } catch (error) {
    const isKnown = error.severity !== undefined && !UNPROVEN.test(error.code);
    throw isKnown ? outcome(error) : new Unknown(`commit: ${error.message}`, { cause: error });
  } finally {
    client.off?.('notice', onNotice);
  }
  if (warning) {
    throw new Unknown(`commit: ${warning.message}: a failover may lose it`, { cause: warning, problem: 'not-replicated' });
  }
  // What COMMIT says after a statement that failed is no error.
  if (done.command !== 'COMMIT') throw new Rejected('it was rolled back', { problem: 'aborted' });
}

export function outcome(error) {
  if (error?.code === '25P03') return endedInside(error, {}); // it is judged before the next statement runs
  if (ENDED.test(error?.code)) {
    return new Unknown(`the session ended: ${error.message}`, { cause: error, problem: 'session-ended' });
  }
  const [kind, problem] = KINDS[error?.code] ?? [];
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

// Libraries over pg keep its error as one of these. What was judged already keeps its outcome.
function isLost(error) {
  for (let inner = error; inner && !(inner instanceof FenceguardError); inner = inner.cause ?? inner.original ?? inner.driverError) {
    if (LOST.test(inner.code) || LOST_WORDS.test(inner.message)) return true;
  }
  return false;
}

function endedInside(cause, { resource, token }) {
  return new Stale(`the session ended inside the transaction, before COMMIT: nothing was committed (${cause.message})`,
    { cause, resource, token: token === undefined ? undefined : BigInt(token), problem: 'session-ended' });
}
