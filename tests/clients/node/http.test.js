// What node:http makes of a call: no write is sent twice, and no answer is taken for another's.

import assert from 'node:assert/strict';
import net from 'node:net';
import { once } from 'node:events';
import { test } from 'node:test';
import { Client } from 'fenceguard';

const ADMITTED = 'HTTP/1.1 200 OK\r\nFencing-Verdict: admitted\r\n';
const EMPTY = ADMITTED + 'Content-Length: 0\r\n\r\n';

// A server that hands each request, its link and its number on the link to answer(); requests have no body of more than
// one piece. lines are the first lines of all requests.
async function serve(t, answer) {
  const lines = [];
  const links = new Set();
  const server = net.createServer((link) => {
    let number = 0;
    links.add(link.on('error', () => {}).on('data', (piece) => {
      const [line] = piece.toString().split('\r\n');
      if (/ HTTP\/1.1$/.test(line)) {
        lines.push(line);
        answer(link, number++);
      }
    }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    links.forEach((link) => link.destroy());
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, lines };
}

const claimed = (url) => new Client({ data: url, control: url, token: 'bearer' })
  .adopt({ resource: 'a', token: 1n, holder: 'h' });
const ending = (promise) => promise.then((value) => value.verdict ?? value, (error) => error.code);

test('no request but a read is sent twice when its kept connection ends', async (t) => {
  const ends = { end: (link) => link.end(), reset: (link) => link.resetAndDestroy(),
    half: (link) => link.end('HTTP/1.1 200 OK\r\nFencing-Ver') };
  for (const method of ['PUT', 'POST', 'DELETE', 'MOVE', 'OPTIONS', 'GET', 'HEAD']) {
    for (const headers of [{}, { 'Idempotency-Key': '1' }]) {
      for (const [how, end] of Object.entries(ends)) {
        let isOver = false;
        const { url, lines } = await serve(t, (link, number) => {
          if (isOver || number === 0) return link.write(EMPTY);
          isOver = true;
          return end(link);
        });
        const lease = claimed(url);
        await lease.write('1');
        const isRead = method === 'GET' || method === 'HEAD';
        const told = await ending(lease.send(method, isRead ? '' : 'body', { headers }));
        assert.equal(told, isRead ? 'admitted' : 'unknown', `${method} ${how}`);
        assert.equal(lines.length, isRead ? 3 : 2, `${method} ${how}`);
      }
    }
  }
});

test('what comes on a kept connection unasked is no answer', async (t) => {
  const { url } = await serve(t, (link) => {
    link.write(EMPTY);
    setImmediate(() => link.write(EMPTY.replace('admitted', 'duplicate')));
  });
  const lease = claimed(url);
  for (let i = 0; i < 20; ++i) {
    const told = await ending(lease.write('1'));
    assert.notEqual(told, 'duplicate');
    await new Promise((resolve) => { setTimeout(resolve, 5); });
  }
});

test('a redirect is not followed, and a proxy of the environment not asked', async (t) => {
  const other = await serve(t, (link) => link.end(EMPTY));
  Object.assign(process.env, { HTTP_PROXY: other.url, http_proxy: other.url, NODE_USE_ENV_PROXY: '1' });
  const { url } = await serve(t, (link) => link.write(
    `HTTP/1.1 307 There\r\nLocation: ${other.url}/\r\nContent-Length: 0\r\n\r\n`));
  const lease = claimed(url);
  for (const call of [() => lease.write('1'), () => lease.read(), () => lease.renew()]) {
    assert.equal(await ending(call()), 'misdirected');
  }
  assert.deepEqual(other.lines, []);
});

test('an answer counts where it is whole', async (t) => {
  const chunked = `${ADMITTED}Transfer-Encoding: chunked\r\n\r\n`;
  const cases = { [EMPTY]: 'admitted', [`${chunked}0\r\n\r\n`]: 'admitted',
    'HTTP/1.1 204 No\r\nFencing-Verdict: admitted\r\n\r\n': 'admitted',
    '': 'unknown', HTT: 'unknown', 'HTTP/1.1 2': 'unknown', 'HTTP/1.1 200 OK\r\n': 'unknown',
    'HTTP/1.1 204 No\r\nFencing-Verdict: admitted\r\n': 'unknown', [`${ADMITTED}\r\nbody`]: 'unknown',
    [`${ADMITTED}Content-Length: 5\r\n\r\nbody`]: 'unknown', [`${chunked}4\r\nbody\r\n`]: 'unknown',
    [`${chunked}x\r\n`]: 'unknown', 'HTTP/1.1 100 Continue\r\n\r\n': 'unknown', 'HTTP/1.1 502 Bad\r\n\r\n': 'unknown',
    'HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n': 'unknown',
    'HTTP/1.1 200 OK\r\n\r\nhello': 'misdirected', 'HTTP/1.1 huh\r\n\r\n': 'misdirected', '+PONG\r\n': 'misdirected',
    '\x15\x03\x01': 'misdirected' };
  for (const [said, wanted] of Object.entries(cases)) {
    const { url } = await serve(t, (link) => link.end(said));
    assert.equal(await ending(claimed(url).write('1')), wanted, said);
  }
});

test('the path of a URL precedes that of each request', async (t) => {
  const { url, lines } = await serve(t, (link) => link.write(EMPTY));
  await claimed(`${url}/guard/`).write('1');
  assert.deepEqual(lines, ['PUT /guard/a HTTP/1.1']);
});
