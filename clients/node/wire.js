// What an answer means. No socket: see link.js.

import { Conflict, Held, Lost, Misdirected, Rejected, Stale, Unauthorized, Unavailable, Unknown } from './outcomes.js';

const PROBLEM = 'urn:fenceguard:problem:';
const CONTROL_ONLY = ['unauthorized', 'forbidden', 'foreign-origin'];
const NAMED = { stale: Stale, conflict: Conflict, held: Held, lost: Lost, unavailable: Unavailable, unknown: Unknown };

export const isRead = (call) => call.method === 'GET' || call.method === 'HEAD';

export const quote = (resource) => Buffer.from(resource).toString('latin1').replace(/[^A-Za-z0-9\-._~/]/g,
  (byte) => '%' + byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0'));

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
