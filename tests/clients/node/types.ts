// What index.d.ts and pg.d.ts must accept, and what they must not.
import { Client, FenceguardError, Stale, type Lease, type Verdict } from 'fenceguard';
import { admit, commit, outcome, transaction, type Connection, type Pool } from 'fenceguard/pg';

interface PoolOfPg extends Pool {
  query(text: string, values?: unknown[]): Promise<{ rows: any[] }>;
}

export async function use(connection: Connection, pool: PoolOfPg): Promise<number> {
  const client = new Client({ token: 'secret', timeout: 5000 });
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
    const rows: number | undefined = await transaction(pool, lease, async (one) => (await one.query('…')).rows.length);
    await transaction(connection, lease, { sequence: 8 }, (one) => one.query(String(rows)));
    // @ts-expect-error: a pool has no transaction of its own
    await admit(pool, lease);
  } catch (error) {
    if (error instanceof Stale && error.highest !== undefined) console.log(error.highest + 1n);
    if (error instanceof FenceguardError && error.code === 'unknown') throw outcome(error);
  }
  return value;
}
