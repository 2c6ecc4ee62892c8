import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { runAutocannon } from './autocannon.js';
import type { LoadGenerator } from './load.js';
import { runWrk } from './wrk.js';

/** Returns wrk if it is on PATH, because it leaves more CPU to the servers; otherwise autocannon in this process. */
export async function findGenerator(folder: string, requestedName: string | undefined): Promise<LoadGenerator> {
  const wrk = requestedName === 'autocannon' ? undefined : await findOnPath('wrk');
  if (wrk !== undefined) return { name: 'wrk', run: (load) => runWrk(wrk, folder, load) };
  if (requestedName === 'wrk') throw new Error('wrk is not on PATH');
  return { name: 'autocannon', run: runAutocannon };
}

async function findOnPath(program: string): Promise<string | undefined> {
  for (const directory of (process.env.PATH ?? '').split(delimiter).filter(Boolean)) {
    const path = join(directory, program);
    const isExecutable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isExecutable) return path;
  }
  return undefined;
}
