// node queues.mjs LIBRARY CONNECTION-STRING: a queue migrates its tables, takes a job and does it. Prints 'done'.
import { makeWorkerUtils, runOnce } from 'graphile-worker';
import pg from 'pg';
import PgBoss from 'pg-boss';

const [library, connectionString] = process.argv.slice(2);

const ways = {
  async 'pg-boss'() {
    const boss = new PgBoss({ connectionString, max: 2 });
    boss.on('error', (error) => { throw error; });
    await boss.start();
    await boss.createQueue('mail');
    const id = await boss.send('mail', { to: 'a' });
    const [job] = await boss.fetch('mail');
    await boss.complete('mail', job.id);
    const done = await boss.getJobById('mail', id);
    await boss.stop({ graceful: false });
    return job.data.to === 'a' && done.state === 'completed';
  },
  async 'graphile-worker'() {
    const utils = await makeWorkerUtils({ connectionString });
    await utils.migrate();
    await utils.addJob('mail', { to: 'a' });
    await utils.release();
    const heard = [];
    await runOnce({ connectionString, taskList: { mail: async (job) => { heard.push(job.to); } } });
    return heard.join() === 'a';
  },
  async script() {
    const client = new pg.Client({ connectionString });
    await client.connect();
    await client.query("-- V1__made.sql\nBEGIN;\nSET LOCAL lock_timeout = '5s';\nCREATE TABLE made (id int primary key, t text);\n" +
      "INSERT INTO made VALUES (1, 'a;b');\nCREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END; $$;\nCOMMIT;\n");
    const failed = await client.query('BEGIN; INSERT INTO made VALUES (2); INSERT INTO made VALUES (1); COMMIT').catch((error) => error);
    await client.query('ROLLBACK');
    const { rows } = await client.query('SELECT count(*)::int AS n, f() FROM made');
    await client.end();
    return failed.code === '23505' && rows[0].n === 1 && rows[0].f === 1;
  },
};
console.log((await ways[library]()) ? 'done' : 'not done');
process.exit(0);
