import { existsSync, rmSync } from 'node:fs';
import { mkdir, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { InvalidArgumentError } from 'commander';
import { type Mongod, startMongod } from './mongod.js';
import { printProgress } from './progress.js';

/** The resources of a benchmark run. */
export interface Environment {
  /** Directory for temporary files. */
  folder: string;
  mongod: Mongod;
  /** Called in reverse order at the end, before the database stops. */
  closers: (() => Promise<void>)[];
}

/** Parses a count of the command line. @throws InvalidArgumentError */
export function parseCount(text: string): number {
  if (!/^[1-9][0-9]{0,7}$/.test(text)) throw new InvalidArgumentError('must be a whole number of at least 1.');
  return Number(text);
}

/** Parses the directory of a built checkout. @throws InvalidArgumentError */
export function parseCheckout(directory: string): string {
  if (!existsSync(join(directory, 'dist/src/main.js')))
    throw new InvalidArgumentError(`there is no dist/src/main.js in ${resolve(directory)}: run npm run build there.`);
  return resolve(directory);
}

/** Runs `work` on a temporary database and removes everything afterwards. */
export async function withEnvironment(work: (environment: Environment) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }));
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
  await mkdir(join(folder, 'db'));
  const mongod = await startMongod(join(folder, 'db'), printProgress);
  // after an interruption: its files can be removed only when it writes no more
  process.prependOnceListener('exit', mongod.kill);
  const closers: Environment['closers'] = [];
  try {
    await work({ folder, mongod, closers });
  } finally {
    for (const close of closers.toReversed()) await close();
    await mongod.stop();
  }
}
