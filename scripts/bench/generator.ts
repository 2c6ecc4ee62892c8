import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { autocannonLoad } from './autocannon.js';
import type { Generator } from './load.js';
import { wrkLoad } from './wrk.js';

/** Returns wrk if it is on PATH, because it leaves more CPU to the servers; otherwise autocannon in this process. */
export async function findGenerator(folder: string, wanted: string | undefined): Promise<Generator> {
  for (const bin of (process.env.PATH ?? '').split(delimiter).filter(Boolean)) {
    const path = join(bin, 'wrk');
    const usable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (usable && wanted !== 'autocannon') return { name: 'wrk', run: (load) => wrkLoad(path, folder, load) };
  }
  if (wanted === 'wrk') throw new Error('wrk is not on PATH');
  return { name: 'autocannon', run: autocannonLoad };
}
