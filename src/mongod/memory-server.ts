import { execFile } from 'node:child_process';
import { readdir, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';

const fetch_timeout_ms = 600_000;
const default_answer_ms = 10_000;
/** To resume, the library would append to what it has, also where the server sends all again. */
const defaults = { MONGOMS_MAX_RETRIES: '1', MONGOMS_RESUME_DOWNLOAD: 'false' };
const run = promisify(execFile);

/** The library prints a line such as `Downloading MongoDB "8.2.6": 12.3% (9.9mb / 80.2mb)` once data arrives. */
const script = `
  const [library, downloadDir, answer_ms] = process.argv.slice(1);
  const { MongoBinary } = require(library);
  const { log } = console;
  const fail = (message) => {
    console.error('Error: ' + message.replaceAll('\\n', ' '));
    process.exit(1);
  };
  const timer = setTimeout(fail, answer_ms, 'no server answers');
  console.log = (line) => {
    clearTimeout(timer);
    log(line.trim());
  };
  MongoBinary.getPath({ downloadDir }).then(console.log, ({ message }) => fail(message));`;

/**
 * Finds a mongod in the caches of mongodb-memory-server, or lets it download one to `cacheDir`. In a process of its own, as
 * its settings are those of process.env and nothing ends a download.
 * @param answer_ms time in which data has to arrive; the library would wait for a minute
 */
export async function fetchWithMemoryServer(
  env: Readonly<Record<string, string | undefined>>,
  cacheDir: string,
  { print, answer_ms = default_answer_ms }: { print: (line: string) => void; answer_ms?: number },
): Promise<string> {
  const library = createRequire(import.meta.url).resolve('mongodb-memory-server');
  const running = run(process.execPath, ['-e', script, library, cacheDir, String(answer_ms)], {
    // without npm_config_strict_ssl the library accepts any certificate
    env: { ...defaults, ...env, MONGOMS_SYSTEM_BINARY: undefined, npm_config_strict_ssl: 'true' },
    timeout: fetch_timeout_ms,
  });
  running.child.stdout?.on('data', (text: Buffer) => {
    for (const line of text.toString().split('\n')) if (line.startsWith('Downloading')) print(line);
  });
  try {
    return (await running).stdout.trim().split('\n').at(-1) ?? '';
  } catch (error) {
    // the library would take such an archive for one that it need not download again
    if (/md5/i.test(String(error))) await removeArchives(cacheDir);
    throw error;
  }
}

async function removeArchives(folder: string): Promise<void> {
  for (const name of await readdir(folder))
    if (name.startsWith('mongodb-')) await rm(join(folder, name), { force: true });
}
