// Requests and answers of HTTP/1.1 as bytes, and what an answer means. No socket: see link.js.

import { Conflict, Held, Lost, Misdirected, Rejected, Stale, Unauthorized, Unavailable, Unknown } from './outcomes.js';

const HEAD_BYTES_MAX = 65536;
const PROBLEM = 'urn:fenceguard:problem:';
const CONTROL_ONLY = ['unauthorized', 'forbidden', 'foreign-origin'];
const NAMED = { stale: Stale, conflict: Conflict, held: Held, lost: Lost, unavailable: Unavailable, unknown: Unknown };

export const isRead = (call) => call.method === 'GET' || call.method === 'HEAD';

// The bytes of a call: {side, method, target, headers, body, limit, resource}, limit in ms.
export function encode(call, host) {
  const lines = [`${call.method} ${call.target} HTTP/1.1`, `Host: ${host}`, `Content-Length: ${call.body.length}`,
    ...Object.entries(call.headers).map(([name, value]) => `${name}: ${value}`)];
  if (lines.some((line) => /[\r\n]/.test(line))) throw new TypeError('a header field holds a line feed');
  return Buffer.concat([Buffer.from([...lines, '', ''].join('\r\n'), 'latin1'), call.body]);
}

export const quote = (resource) => Buffer.from(resource).toString('latin1').replace(/[^A-Za-z0-9\-._~/]/g,
  (byte) => '%' + byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0'));

const noHttp = () => new Misdirected('what answers speaks no HTTP', { found: 'other' });

// A generator that is given pieces as they arrive, null at the end, and returns {status, headers, body, isKept};
// headers by names in lower case. isKept: the connection can be used again.
export function* readAnswer(method) {
  let received = Buffer.alloc(0);
  function* take(count) {
    const pieces = [received];
    for (let length = received.length; length < count; length += pieces.at(-1).length) pieces.push(yield* next());
    const all = Buffer.concat(pieces);
    received = all.subarray(count);
    return all.subarray(0, count);
  }
  function* takeLine(mark, check = () => {}) {
    for (check(); !received.includes(mark); check()) received = Buffer.concat([received, yield* next()]);
    const line = yield* take(received.indexOf(mark));
    yield* take(mark.length);
    return line.toString('latin1');
  }
  const checkHead = () => {
    const begin = received.toString('latin1', 0, 5);
    if (!'HTTP/'.startsWith(begin) || received.length > HEAD_BYTES_MAX) throw noHttp();
  };
  let head;
  do head = parseHead(yield* takeLine('\r\n\r\n', checkHead)); while (head.status < 200);
  const { status, headers } = head;
  const answer = (body, hasLength) => ({ status, headers, body,
    isKept: hasLength && received.length === 0 && headers.connection?.toLowerCase() !== 'close' });
  if (method === 'HEAD' || status === 204 || status === 304) return answer(Buffer.alloc(0), true);
  if (headers['transfer-encoding']?.toLowerCase() === 'chunked') {
    const pieces = [];
    for (;;) {
      const size = parseInt(yield* takeLine('\r\n'), 16);
      if (!(size >= 0)) throw new Unknown('a chunk without a length');
      pieces.push((yield* take(size + 2)).subarray(0, size));
      if (size === 0) return answer(Buffer.concat(pieces), true);
    }
  }
  if (headers['content-length'] !== undefined) return answer(yield* take(Number(headers['content-length'])), true);
  const pieces = [received];
  for (let piece = yield; piece; piece = yield) pieces.push(piece);
  if (headers['fencing-verdict']) throw new Unknown('whether an answer without a length is whole is not known');
  return answer(Buffer.concat(pieces), false);
}

function* next() {
  const piece = yield;
  if (!piece) throw new Unknown('the connection ended before the answer did');
  return piece;
}

function parseHead(head) {
  const [first, ...lines] = head.split('\r\n');
  const status = Number(first.split(' ')[1]);
  if (!(status >= 100)) throw noHttp();
  return { status, headers: Object.fromEntries(lines.map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim()];
  })) };
}

function parse(body) {
  try {
    return JSON.parse(body) ?? {};
  } catch {
    return {};
  }
}

// The members of a lease; null where there is none.
export function leaseIn(answer) {
  const members = parse(answer.body);
  return /^\d+$/.test(members.token) && typeof members.holder === 'string' ? members : null;
}

// Returns where the call succeeded; throws what else it ended with. clients/README.md has the table.
export function judge(call, answer) {
  const { status, headers } = answer;
  const isProblem = headers['content-type']?.includes('application/problem+json');
  let members = isProblem ? parse(answer.body) : {};
  if (typeof members.type !== 'string' || !members.type.startsWith(PROBLEM)) members = {};
  const name = members.type?.slice(PROBLEM.length);
  const verdict = headers['fencing-verdict'];
  let [kind, found] = (call.side === 'data' ? judgeData : judgeControl)(call, answer, verdict, name, members);
  if (!name && !verdict && status >= 500) [kind, found] = [isRead(call) ? Unavailable : Unknown];
  if (!kind) return;
  const facts = { resource: call.resource, status, problem: name, found };
  for (const number of ['token', 'highest']) if (/^\d+$/.test(members[number])) facts[number] = BigInt(members[number]);
  if (/^\d+$/.test(headers['retry-after'])) facts.retryAfter = headers['retry-after'] * 1000;
  if (kind === Lost) facts.reason = 'ended';
  throw new kind(`${call.method} ${call.resource}: ${status} ${members.detail ?? verdict ?? ''}`.trimEnd(), facts);
}

function judgeData(call, answer, verdict, name, members) {
  const { status } = answer;
  const isDone = status < 300 || (!isRead(call) && status >= 301 && status <= 303);
  const isPlain = !('Fencing-Token' in call.headers);
  if (!verdict && (CONTROL_ONLY.includes(name) || (name === 'not-found' && !('resource' in members)))) {
    return [Misdirected, 'control'];
  }
  if (!verdict && !name && !(isPlain && isDone)) return [Misdirected, 'other'];
  const kind = NAMED[verdict] ?? NAMED[name];
  if (kind) return [kind];
  return verdict === 'duplicate' || isDone || (isRead(call) && status === 404) ? [] : [Rejected];
}

function judgeControl(call, answer, verdict, name) {
  if (['admitted', 'missing'].includes(verdict) || ['method-not-allowed', 'missing'].includes(name)
    || (name === 'not-found' && call.method === 'POST')) return [Misdirected, 'data'];
  if (NAMED[name]) return [NAMED[name]];
  if (name) return [name === 'unauthorized' || name === 'forbidden' ? Unauthorized : Rejected];
  const isDone = call.method === 'DELETE' ? answer.status === 204
    : [200, 201].includes(answer.status) && leaseIn(answer);
  return isDone ? [] : [Misdirected, 'other'];
}
