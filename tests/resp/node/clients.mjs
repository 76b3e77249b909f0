// One client library of npm against the sidecar: claims, writes, a pipeline, transactions, subscriptions, and a stale write.
//
// node clients.mjs LIBRARY PORT. Each prints 'stale' when it has been refused; then it waits for a line before it goes on.
import assert from 'node:assert/strict';
import {once} from 'node:events';
import process from 'node:process';

const [library, port] = process.argv.slice(2);
const CLAIM = ['34', 'ada'];

// The newer holder comes: the test advances the fence, and says so.
async function takenOver() {
  console.log('ready');
  await once(process.stdin, 'data');
}

const isStale = (error) => error instanceof Error && error.message.startsWith('STALE token=34 highest=35');

async function ioredis() {
  const {Redis} = await import('ioredis');
  const client = new Redis({port, host: '127.0.0.1'});
  const other = new Redis({port, host: '127.0.0.1', stringNumbers: true});
  await assert.rejects(client.set('{a}n', '1'), /^ReplyError: NOFENCE resource=a/);
  assert.equal(await client.call('FENCE', 'a', ...CLAIM), 'OK');
  assert.equal(await client.set('{a}n', '1'), 'OK');
  assert.equal(await other.call('FENCED', 'a', ...CLAIM, 'INCRBY', '{a}n', '9007199254740993'), '9007199254740994');
  assert.deepEqual(await client.pipeline().rpush('{a}l', 'x', 'y').lpop('{a}l', 5).lpop('{a}l', 5).set('b', '1').exec().then(
    (all) => all.map(([error, value]) => error ? error.message.split(' ')[0] : value)), [2, ['x', 'y'], null, 'NOFENCE']);
  assert.deepEqual(await client.multi().set('{a}n', '2').get('{a}n').exec(), [[null, 'OK'], [null, '2']]);
  await client.watch('{a}n');
  await other.call('FENCED', 'a', ...CLAIM, 'SET', '{a}n', '3');
  assert.equal(await client.multi().set('{a}n', '4').exec(), null);
  await other.subscribe('news');
  const heard = once(other, 'message');
  assert.equal(await client.publish('news', 'hello'), 1);
  assert.deepEqual(await heard, ['news', 'hello']);
  assert.equal(await client.getBuffer('{a}n').then(String), '3');
  await takenOver();
  await assert.rejects(client.set('{a}n', '5'), isStale);
  await assert.rejects(client.multi().set('{a}n', '5').exec(), isStale);
  await assert.rejects(client.call('FENCED', 'a', ...CLAIM, 'SET', '{a}n', '5'), isStale);
  assert.equal(await client.get('{a}n'), '3');
  client.disconnect();
  other.disconnect();
}

async function nodeRedis(name) {
  const {createClient, createClientPool} = await import(name);
  const url = `redis://127.0.0.1:${port}`;
  const client = await createClient({url}).connect();
  const other = await createClient({url}).connect();
  await assert.rejects(client.set('{a}n', '1'), /NOFENCE resource=a/);
  assert.equal(await client.sendCommand(['FENCE', 'a', ...CLAIM]), 'OK');
  assert.equal(await client.set('{a}n', '1'), 'OK');
  assert.deepEqual(await Promise.all([client.rPush('{a}l', ['x', 'y']), client.lPopCount('{a}l', 5), client.lPopCount('{a}l', 5)]),
                   [2, ['x', 'y'], null]);
  assert.deepEqual(await client.multi().set('{a}n', '2').get('{a}n').exec(), ['OK', '2']);
  await client.watch('{a}n');
  await other.sendCommand(['FENCED', 'a', ...CLAIM, 'SET', '{a}n', '3']);
  await assert.rejects(client.multi().set('{a}n', '4').exec(), {name: /./, message: /WatchError|watched keys/});
  const heard = [];
  await other.subscribe('news', (message) => heard.push(message));
  assert.equal(await client.publish('news', 'hello'), 1);
  await other.unsubscribe('news');
  assert.deepEqual(heard, ['hello']);
  if (createClientPool) {
    const pool = await createClientPool({url}).connect();
    await Promise.all(Array.from({length: 50}, (_, number) =>
      pool.sendCommand(['FENCED', 'a', ...CLAIM, 'SADD', '{a}s', String(number)])));
    assert.equal(await pool.sCard('{a}s'), 50);
    pool.destroy();
    await assert.rejects(createClient({url, RESP: 3, socket: {reconnectStrategy: false}}).on('error', () => {}).connect(),
                         /unknown command 'HELLO'/);
  }
  await takenOver();
  await assert.rejects(client.set('{a}n', '5'), isStale);
  await assert.rejects(client.multi().set('{a}n', '5').exec(), isStale);
  await assert.rejects(client.sendCommand(['FENCED', 'a', ...CLAIM, 'SET', '{a}n', '5']), isStale);
  assert.equal(await client.get('{a}n'), '3');
  for (const each of [client, other]) await (each.close ?? each.quit).call(each);
}

await (library === 'ioredis' ? ioredis() : nodeRedis(library));
console.log('done');
process.exit(0);
