// What index.d.ts and pg.d.ts must accept, and what they must not.
import { Client, FenceguardError, Stale, type Lease, type Verdict } from 'fenceguard';
import { admit, commit, outcome, type Connection } from 'fenceguard/pg';

export async function use(connection: Connection): Promise<number> {
  const client = new Client({ token: 'secret' });
  const value: number = await client.run('a', { ttl: 1000, attempts: 2 }, async (lease) => {
    const verdict: Verdict = await lease.write('1', { sequence: 7, signal: lease.signal });
    return verdict.length;
  });
  await client.fenced('a', async (lease: Lease) => lease.delete());
  // @ts-expect-error: a resource is text
  await client.acquire(42);
  // @ts-expect-error: fenced() does not repeat
  await client.fenced('a', { attempts: 2 }, () => {});
  try {
    const lease = await client.acquire('a', { wait: 0 });
    await admit(connection, lease, { sequence: 7n });
    await commit(connection);
  } catch (error) {
    if (error instanceof Stale && error.highest !== undefined) console.log(error.highest + 1n);
    if (error instanceof FenceguardError && error.code === 'unknown') throw outcome(error);
  }
  return value;
}
