import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from 'node:child_process';
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { findFreePort, startProcess, waitUntil } from '../../support/service-process.js';
import {
  activity_s,
  low_fuel,
  type Peer,
  type QueryName,
  readTreeCpu,
  type Subject,
  sendAtOnce,
  timed,
} from './peer.js';
import { diagnosticNames, type Entry, readingNames, type Truck } from './trucks.js';

const programs = '/usr/lib/postgresql/15/bin';
const senders = 4;
/** It refuses to run as root. */
const asUser = process.getuid?.() === 0 ? ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups'] : [];

/** Starts PostgreSQL 15 in a folder, with the memory that is usual for this machine, and tables as TSBS has them. */
export async function startPostgresql(
  folder: string,
  trucks: readonly Truck[],
  { fleet, truck, from, to }: Subject,
): Promise<Peer> {
  const root = join(folder, 'postgresql');
  await mkdir(root);
  if (asUser.length > 0) {
    await chmod(folder, 0o755);
    execFileSync('chown', ['postgres', root]);
  }
  const run = (program: string, args: readonly string[]) => [...asUser, join(programs, program), ...args];
  const [command = '', ...args] = run('initdb', ['-D', join(root, 'data'), '-A', 'trust', '-U', 'postgres']);
  execFileSync(command, args, { stdio: 'ignore', cwd: root });
  const port = await findFreePort();
  const settings = { shared_buffers: '2GB', max_wal_size: '4GB', unix_socket_directories: root, listen_addresses: '' };
  const [server_command = '', ...server_args] = run('postgres', [
    ...['-D', join(root, 'data'), '-p', String(port)],
    ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ]);
  const server = startProcess(server_command, server_args, {
    env: process.env,
    cwd: root,
    logFile: join(folder, 'pg'),
  });
  await waitUntil(() => server.err().includes('ready to accept connections'), 30_000);
  const connect = () => openSession(['-h', root, '-p', String(port), '-U', 'postgres', '-d', 'postgres']);
  const sessions = Array.from({ length: senders }, connect);
  const [first = connect()] = sessions;
  const columns = (names: readonly string[]) => names.map((name) => `${name} double precision`).join(', ');
  await first.run(`
    CREATE TABLE trucks (id int PRIMARY KEY, name text UNIQUE, fleet text, model text, driver text);
    CREATE TABLE readings (time timestamptz NOT NULL, truck int NOT NULL, ${columns(readingNames)});
    CREATE TABLE diagnostics (time timestamptz NOT NULL, truck int NOT NULL, ${columns(diagnosticNames)});
    CREATE INDEX ON readings (truck, time DESC);
    CREATE INDEX ON diagnostics (truck, time DESC);
    CREATE INDEX ON readings (time DESC);
    CREATE INDEX ON diagnostics (time DESC);`);
  await first.copy(
    'trucks',
    trucks.map((each, id) => [id, each.name, each.fleet, each.model, each.driver]),
  );
  const ids = new Map(trucks.map(({ name }, id) => [name, id]));
  const span = `time BETWEEN to_timestamp(${from}) AND to_timestamp(${to})`;
  const last = (table: string, fields: string) =>
    `SELECT t.name, l.* FROM trucks t, LATERAL (SELECT ${fields} FROM ${table} WHERE truck = t.id ORDER BY time DESC LIMIT 1) l`;
  const queries: Record<QueryName, string> = {
    'last locations': `${last('readings', 'latitude, longitude')};`,
    'low fuel': `${last('diagnostics', 'fuel_state')} WHERE l.fuel_state < ${low_fuel};`,
    'load of a fleet by hours': `SELECT date_trunc('hour', time), avg(current_load) FROM diagnostics
      WHERE truck IN (SELECT id FROM trucks WHERE fleet = '${fleet}') AND ${span} GROUP BY 1;`,
    'activity of a truck': `SELECT floor(extract(epoch FROM time) / ${activity_s}), avg(velocity) FROM readings
      WHERE truck = ${ids.get(truck.name)} AND ${span} GROUP BY 1;`,
  };
  return {
    name: 'PostgreSQL 15',
    load: (batches) =>
      sendAtOnce(batches, senders, async (batch, sender) => {
        const session = sessions[sender];
        const rowsOf = <Name extends string>(names: readonly Name[], pick: (entry: Entry) => Record<Name, number>) =>
          batch.map((entry) => [
            new Date(entry.at * 1000).toISOString(),
            ids.get(entry.truck.name) ?? -1,
            ...names.map((name) => pick(entry)[name]),
          ]);
        await session?.copy(
          'readings',
          rowsOf(readingNames, ({ readings }) => readings),
        );
        await session?.copy(
          'diagnostics',
          rowsOf(diagnosticNames, ({ diagnostics }) => diagnostics),
        );
      }),
    readCpu: () => readTreeCpu(server.pid),
    async measureSize() {
      const sizes = `SELECT pg_total_relation_size('readings') + pg_total_relation_size('diagnostics');`;
      const [bytes = ''] = await first.run(`VACUUM ANALYZE; CHECKPOINT;\n${sizes}`);
      return Number(bytes);
    },
    ask: (query) => timed(async () => (await first.run(queries[query])).length),
    async stop() {
      for (const session of sessions) session.end();
      // SIGINT: without waiting for its clients
      await server.stop('SIGINT');
    },
  };
}

const mark = '-- done --';

/** A session of psql, which runs one statement after the other. */
function openSession(args: readonly string[]) {
  const options = ['-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1'];
  const child: ChildProcessWithoutNullStreams = spawn(join(programs, 'psql'), [...options, ...args]);
  let errors = '';
  child.stderr.on('data', (text) => {
    errors += text;
  });
  let lines: string[] = [];
  let finish: (lines: string[]) => void = () => undefined;
  let fail: (error: Error) => void = () => undefined;
  child.once('close', () => fail(new Error(`psql: ${errors}`)));
  createInterface(child.stdout).on('line', (line) => {
    if (line !== mark) lines.push(line);
    else {
      finish(lines);
      lines = [];
    }
  });
  function run(text: string): Promise<string[]> {
    return new Promise((resolve, reject) => {
      [finish, fail] = [resolve, reject];
      child.stdin.write(`${text}\n\\echo ${mark}\n`);
    });
  }
  return {
    /** @returns the lines of the answer */
    run,
    copy: (table: string, rows: readonly (readonly (string | number)[])[]) =>
      run(`COPY ${table} FROM STDIN WITH CSV;\n${rows.map((row) => row.join()).join('\n')}\n\\.`),
    end: () => void child.stdin.end(),
  };
}
