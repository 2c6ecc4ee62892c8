import { rmSync } from 'node:fs';
import { mkdir, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { InvalidArgumentError } from 'commander';
import { type Mongod, startMongod } from './mongod.js';
import { say } from './progress.js';

export interface Stage {
  /** For files that are of no use afterwards. */
  folder: string;
  mongod: Mongod;
  /** Called in reverse at the end, before the database stops. */
  closers: (() => Promise<void>)[];
}

/** A count of the command line. @throws InvalidArgumentError */
export function wholeNumber(text: string): number {
  if (!/^[1-9][0-9]{0,7}$/.test(text)) throw new InvalidArgumentError('must be a whole number of at least 1.');
  return Number(text);
}

/** Runs `work` with a database of its own, and leaves nothing behind. */
export async function onStage(work: (stage: Stage) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
  await mkdir(join(folder, 'db'));
  const mongod = await startMongod(join(folder, 'db'), say);
  const closers: Stage['closers'] = [];
  try {
    await work({ folder, mongod, closers });
  } finally {
    for (const close of closers.toReversed()) await close();
    await mongod.stop();
  }
}
