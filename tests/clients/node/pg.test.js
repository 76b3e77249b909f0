// Claims in transactions of PostgreSQL, by the README's deposit().
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import pg from 'pg';
import { Conflict, Rejected, Stale, Unknown } from 'fenceguard';
import { admit, commit, outcome } from 'fenceguard/pg';
import { deposit } from './deposit.mjs';

const claim = (token, holder) => ({ resource: 'accounts/42', token, holder });
let connection;
let other;

async function open() {
  const opened = new pg.Client({ connectionString: process.env.FENCEGUARD_POSTGRES_URL });
  opened.on('error', () => {}); // one test ends a connection
  await opened.connect();
  return opened;
}

async function balance() {
  return Number((await other.query('select balance from account where id = 42')).rows[0].balance);
}

before(async () => {
  other = await open();
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
});

test('an older token is refused in its own transaction', async () => {
  await deposit(connection, claim(33n, 'first'), 30);
  await deposit(connection, claim(34n, 'second'), 5);
  await assert.rejects(deposit(connection, claim(33n, 'first'), 1000), (error) =>
    error instanceof Stale && error.resource === 'accounts/42' && error.token === 33n && error.highest === 34n);
  await assert.rejects(deposit(connection, claim(34n, 'third'), 1000), Conflict);
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
  await assert.rejects(deposit(connection, claim(0n, 'first'), 30), Rejected);
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
});
