import { execFileSync } from 'node:child_process';
import { accessSync, constants, readFileSync, statfsSync } from 'node:fs';
import { MongoMemoryReplSet } from 'mongodb-memory-server';

const memory_folder = '/dev/shm';
/** Far more than the databases of all tests need at one time. */
const min_free_memory_bytes = 6 * 2 ** 30;

const parameters = [
  // by default the files of dropped databases are kept for 5 minutes, until mongod may not open more; lists read snapshots
  'minSnapshotHistoryWindowInSeconds=30',
  // recorded once a second, about every collection
  'diagnosticDataCollectionEnabled=false',
].flatMap((parameter) => ['--setParameter', parameter]);

/** The process around the tests reads each line of the log: none about connections, and commands that a busy machine delays. */
const logging = ['--quiet', '--slowms', '10000'];

/** True if databases of tests fit into memory, where nothing waits for a disk. */
function hasRoomInMemory() {
  try {
    accessSync(memory_folder, constants.W_OK);
    const { bavail, bsize } = statfsSync(memory_folder);
    const [, available_kib = '0'] = /^MemAvailable: +(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8')) ?? [];
    return Math.min(bavail * bsize, Number(available_kib) * 1024) >= min_free_memory_bytes;
  } catch {
    return false;
  }
}

/** Builds what has changed and starts one real mongod for the whole run, a replica set of one; each test file has databases of its own. */
export default async function setUp(_config, { testPathIgnorePatterns }) {
  // jest sets NODE_ENV, with which the console would be built for development
  const { NODE_ENV: _, ...env } = process.env;
  execFileSync(process.execPath, ['scripts/run.js'], { env, stdio: 'inherit' });
  const { findMongod } = await import('../../dist/src/mongod/binary.js');
  const { findStorageServers } = await import('./storage/install.js');
  // before anything asks for os.tmpdir(); the workers inherit it
  if (process.env.TMPDIR === undefined && hasRoomInMemory()) process.env.TMPDIR = memory_folder;
  // only system tests have storage servers
  const isSystemRun = !testPathIgnorePatterns.includes('/tests/system/');
  const found = isSystemRun && findStorageServers({ env: process.env, print: (line) => console.error(line) });
  const { path, version } = await findMongod({ env: process.env, print: (line) => console.error(line) });
  const mongod = await MongoMemoryReplSet.create({
    binary: { systemBinary: path, version },
    replSet: { count: 1, storageEngine: 'wiredTiger' },
    instanceOpts: [{ launchTimeout: 60_000, args: [...parameters, ...logging] }],
  });
  const servers = (await found) || {};
  process.env.TEST_MONGODB_URI = mongod.getUri();
  process.env.TEST_STORAGE_SERVERS = JSON.stringify(servers);
  globalThis.stopTestMongod = async () => {
    await mongod.stop();
    // after jest's summary, which only counts what was skipped
    for (const [name, { missing }] of Object.entries(servers))
      if (missing !== undefined) console.error(`not installed, skipped: ${name} (${missing})`);
  };
}
