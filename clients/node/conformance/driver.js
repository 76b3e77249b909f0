// The driver of clients/README.md over the Node client.

import { createInterface } from 'node:readline';
import { Client, FenceguardError } from '../index.js';

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const leases = new Map();
let client;

const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');
const times = (command) => ({ ttl: command.ttl_ms, wait: command.wait_ms ?? 0 });
const leaseOf = (command) => leases.get(command.lease ?? 'main');
const object = (body) => ({ outcome: 'admitted', body: body?.toString() ?? null });

// The answer that an outcome is.
function told(error) {
  if (!(error instanceof FenceguardError)) return { outcome: 'error', detail: String(error?.stack ?? error) };
  const { code, message, token, highest, retryAfter, problem, status, found, reason } = error;
  return { outcome: code, detail: message, token: token?.toString(), highest: highest?.toString(),
    retry_after_ms: retryAfter, problem, status, found, reason };
}

function lost(lease, limit) {
  return new Promise((resolve) => {
    const answer = () => resolve({ outcome: 'lost', reason: lease.reason });
    if (lease.isLost) return answer();
    const timer = setTimeout(() => resolve({ outcome: 'timeout' }), limit);
    return lease.signal.addEventListener('abort', () => (clearTimeout(timer), answer()));
  });
}

async function run(command) {
  let grants = 0;
  const options = { ...times(command), attempts: command.attempts };
  const value = await client.run(command.resource, options, async (lease) => {
    grants += 1;
    const total = Number(await lease.read() ?? 0) + command.add;
    if (command.pause && grants === 1) {
      say({ event: 'paused' });
      await lines.next();
    }
    await lease.write(String(total));
    return total;
  });
  return { outcome: 'done', value, attempts: grants };
}

const commands = {
  client({ data, control, bearer, timeout_ms: timeout }) {
    client = new Client({ data, control, token: bearer, timeout });
    return { outcome: 'ok', timeout_ms: client.timeout };
  },
  async acquire(command) {
    const lease = await client.acquire(command.resource, { ...times(command), renew: command.renew });
    leases.set(command.lease ?? 'main', lease);
    return { outcome: 'granted', token: lease.token.toString(), holder: lease.holder };
  },
  adopt(command) {
    leases.set(command.lease ?? 'main', client.adopt(command));
    return { outcome: 'ok' };
  },
  renew: async (command) => (await leaseOf(command).renew(), { outcome: 'renewed' }),
  lost: (command) => ({ outcome: 'ok', lost: leaseOf(command).isLost }),
  wait_lost: (command) => lost(leaseOf(command), command.limit_ms),
  write: async (command) =>
    ({ outcome: await leaseOf(command).write(command.body, { sequence: command.sequence }) }),
  delete: async (command) => ({ outcome: await leaseOf(command).delete() }),
  read: async (command) => object(await leaseOf(command).read()),
  plain_read: async (command) => object(await client.read(command.resource)),
  release: async (command) => (await leaseOf(command).release(), { outcome: 'released' }),
  run,
};

for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const command = JSON.parse(line.value);
  say(await Promise.resolve(command).then(commands[command.do]).catch(told));
}
