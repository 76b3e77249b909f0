// Claims in transactions of PostgreSQL, by the README's deposit().
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import pg from 'pg';
import { inspect } from 'node:util';
import { Client, Conflict, Rejected, Stale, Unavailable, Unknown } from 'fenceguard';
import { admit, commit, outcome, transaction } from 'fenceguard/pg';
import { deposit } from './deposit.mjs';

const DEPOSIT = 'update account set balance = balance + 1';
const claim = (token, holder) => ({ resource: 'accounts/42', token, holder });
let connection;
let other;
let pool;

async function open() {
  const opened = new pg.Client({ connectionString: process.env.FENCEGUARD_POSTGRES_URL });
  opened.on('error', () => {}); // one test ends a connection
  await opened.connect();
  return opened;
}

async function balance() {
  return Number((await other.query('select balance from account where id = 42')).rows[0].balance);
}

const terminate = (client) => other.query('select pg_terminate_backend($1, 30000)', [client.processID]);
const isCutOff = (error) => error instanceof Stale && error.problem === 'session-ended';

before(async () => {
  other = await open();
  pool = new pg.Pool({ connectionString: process.env.FENCEGUARD_POSTGRES_URL });
  pool.on('error', () => {});
});

beforeEach(async () => {
  await connection?.end().catch(() => {});
  connection = await open();
  await other.query(`drop table if exists account;
    create table account (id bigint primary key, balance bigint not null);
    insert into account values (42, 100);
    select fenceguard.protect('account', $$ 'accounts/' || id $$);
    delete from fenceguard.fences`);
});

after(async () => {
  await connection.end();
  await other.end();
  await pool.end();
});

test('an older token is refused in its own transaction', async () => {
  await deposit(pool, claim(33n, 'first'), 30);
  await deposit(pool, claim(34n, 'second'), 5);
  await assert.rejects(deposit(pool, claim(33n, 'first'), 1000), (error) =>
    error instanceof Stale && error.resource === 'accounts/42' && error.token === 33n && error.highest === 34n);
  await assert.rejects(deposit(pool, claim(34n, 'third'), 1000), Conflict);
  assert.equal(await balance(), 135);
});

test('a write of the same sequence is a duplicate', async () => {
  const first = claim(9007199254740993n, 'first');
  for (const verdict of ['admitted', 'duplicate']) {
    await connection.query('begin');
    assert.equal(await admit(connection, first, { sequence: 7 }), verdict);
    await commit(connection);
  }
  assert.equal((await other.query('select token from fenceguard.fences')).rows[0].token, '9007199254740993');
});

test('a write without a claim and a malformed claim are rejected', async () => {
  await assert.rejects(connection.query('update account set balance = 0').catch((error) => {
    throw outcome(error);
  }), (error) => error instanceof Rejected && error.problem === 'missing');
  await assert.rejects(deposit(pool, claim(0n, 'first'), 30), Rejected);
  assert.equal(await balance(), 100);
});

test('a commit that the server turns into a rollback is rejected', async () => {
  await connection.query('begin');
  await admit(connection, claim(33n, 'first'));
  await assert.rejects(connection.query('select 1 / 0'));
  await assert.rejects(commit(connection), (error) => error instanceof Rejected && error.problem === 'aborted');
});

test('a commit whose connection ended is unknown', async () => {
  await connection.query('begin');
  await admit(connection, claim(33n, 'first'));
  await other.query('select pg_terminate_backend($1, 30000)', [connection.processID]);
  await assert.rejects(commit(connection), Unknown);
  for (const code of ['57P01', '57P02', '25P04']) {
    assert.ok(outcome(Object.assign(new Error('no'), { code })) instanceof Unknown, code);
  }
  assert.ok(isCutOff(outcome(Object.assign(new Error('no'), { code: '25P03' }))));
});

test('a pool is refused, and so is a connection without a transaction', async () => {
  await assert.rejects(admit(pool, claim(33n, 'first')), /a pool runs each query/);
  await pool.query('begin');
  await assert.rejects(admit(pool, claim(33n, 'first')), TypeError);
  await pool.query('rollback');
  await assert.rejects(admit(connection, claim(33n, 'first')), /none is open/);
  const bare = { query: (...words) => connection.query(...words) }; // which tells nothing of its state
  await assert.rejects(admit(bare, claim(33n, 'first')), /none is open/);
  await connection.query('begin');
  assert.equal(await admit(bare, claim(33n, 'first')), 'admitted');
  await assert.rejects(transaction(connection, claim(33n, 'first'), () => {}), /open already/);
  await connection.query('rollback');
});

// What is shown: a holder that stopped inside its transaction is cut off by the next, and what it hears on waking says
// that nothing was committed, however it does on.
test('a session that was ended inside the transaction is stale', async () => {
  const write = (client) => client.query(DEPOSIT);
  for (const source of [pool, connection]) {
    await assert.rejects(transaction(source, claim(33n, 'first'), async (client) => {
      await write(client);
      await terminate(client);
      await write(client);
    }), (error) => isCutOff(error) && error.token === 33n && /nothing was committed/.test(error.message));
  }
  await assert.rejects(transaction(pool, claim(33n, 'first'), async (client) => {
    await write(client);
    const over = new Promise((resolve) => client.once('end', resolve));
    await terminate(client);
    await over; // seen before COMMIT is sent, so that it is not
  }), isCutOff);
  await connection.end().catch(() => {});
  connection = await open();
  await connection.query('begin');
  await admit(connection, claim(33n, 'first'));
  const told = assert.rejects(connection.query('select pg_sleep(60)'), (error) => outcome(error) instanceof Unknown);
  await terminate(connection);
  await told;
  assert.equal(await balance(), 100);
});

test('a session that was ended while COMMIT was on its way is unknown', async () => {
  await other.query(`create or replace function linger() returns trigger language plpgsql as
    $$ begin perform pg_sleep(60); return null; end $$;
    create constraint trigger linger after update on account deferrable initially deferred for each row
    execute function linger()`);
  let client;
  const told = assert.rejects(transaction(pool, claim(33n, 'first'), (taken) => {
    client = taken;
    return client.query(DEPOSIT);
  }), Unknown);
  for (;;) {
    const { rows } = await other.query("select from pg_stat_activity where query = 'commit' and state = 'active'");
    if (rows.length > 0) break;
  }
  await terminate(client);
  await told;
});

test('what the body throws passes through a rollback, also beside a session that has ended', async () => {
  await assert.rejects(transaction(pool, claim(33n, 'first'), async (client) => {
    await client.query(DEPOSIT);
    throw new RangeError('not enough');
  }), RangeError);
  await assert.rejects(transaction(pool, claim(33n, 'first'), async (client) => {
    await terminate(client);
    throw new RangeError('not enough');
  }), RangeError);
  assert.equal(await balance(), 100);
  await terminate(connection);
  await assert.rejects(transaction(connection, claim(33n, 'first'), () => {}), Unavailable);
});

test('run() takes the lock again after its session was ended', async () => {
  const tokens = [];
  const [data, control] = [process.env.GUARD_DATA, process.env.GUARD_CONTROL];
  await new Client({ data, control }).run('accounts/42', (lease) => transaction(pool, lease, async (client) => {
    await client.query(DEPOSIT);
    tokens.push(lease.token);
    if (tokens.length === 1) await terminate(client);
    await client.query(DEPOSIT);
  }));
  assert.ok(tokens.length === 2 && tokens[1] > tokens[0], String(tokens));
  assert.equal(await balance(), 102);
});

test('what is printed or logged of a lease and of a refusal is no claim', async () => {
  const lease = new Client().adopt({ resource: 'accounts/42', token: 33, holder: 'who-it-is', signature: 'sealed' });
  const refused = await transaction(pool, lease, (client) => terminate(client).then(() => client.query(DEPOSIT)))
    .catch((error) => error);
  for (const value of [lease, refused]) {
    for (const text of [inspect(value, { depth: 9, showHidden: true }), JSON.stringify(value, (_, inner) =>
      (typeof inner === 'bigint' ? String(inner) : inner)), String(value.stack)]) {
      assert.doesNotMatch(text, /who-it-is|sealed/);
    }
  }
  assert.equal(JSON.parse(JSON.stringify({ lease })).lease.token, '33');
  assert.deepEqual([lease.holder, lease.signature], ['who-it-is', 'sealed']);
});

async function awaitStandby(name) {
  await other.query(`alter system set synchronous_standby_names = '${name}'`);
  await other.query('select pg_reload_conf()');
  while ((await other.query('show synchronous_standby_names')).rows[0].synchronous_standby_names !== name);
  await other.query('checkpoint'); // until its checkpointer has read it as well, no commit waits
}

test('a commit whose wait for the standby was cancelled is unknown', async () => {
  await awaitStandby('nobody');
  let isOver = false;
  try {
    const told = assert.rejects(transaction(pool, claim(33n, 'first'), (client) => client.query(DEPOSIT)),
      (error) => error instanceof Unknown && error.problem === 'not-replicated').finally(() => {
      isOver = true;
    });
    while (!isOver) {
      await other.query("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'");
    }
    await told;
  } finally {
    await awaitStandby('');
  }
  assert.equal(await balance(), 101);
});
