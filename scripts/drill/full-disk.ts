import { execFileSync } from 'node:child_process';
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createStreamDevice, findStreamFaults, startPosting, startPublishing } from '../checks/numbered-streams.js';
import { startInstance } from '../support/instance.js';
import { waitUntil } from '../support/service-process.js';
import type { Outcome } from './outcome.js';

const disk_mib = 1024;
const refused_requests = 20;
/** With a line for each name that is refused; one for each request would be hundreds. */
const lines_per_minute = 40;

/** Reports whether this process may mount a small disk: it is root, and no container forbids it. */
export function canMount(): boolean {
  try {
    execFileSync('sh', ['-c', 'd=$(mktemp -d) && mount -t tmpfs none "$d" && umount "$d" && rmdir "$d"'], {
      stdio: 'ignore',
    });
    return true;
  } catch {
    return false;
  }
}

/**
 * Fills the disk of a service with an embedded database under load, waits until requests are refused, and empties it: the log
 * names the reason, and the service recovers by itself with everything it has acknowledged.
 */
export async function drillFullDisk(): Promise<Outcome> {
  const disk = await mkdtemp(join(tmpdir(), 'full-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${disk_mib}m`, 'none', disk]);
  try {
    const instance = await startInstance({ DATA_DIR: join(disk, 'data'), LOG_LEVEL: 'warn' });
    try {
      const { url, key, mqttPort } = instance;
      const device = await createStreamDevice(url, key, 'filled');
      const posting = [startPosting(url, key, device)];
      const publishing = [await startPublishing(`mqtt://127.0.0.1:${mqttPort}`, device)];
      const all = [...posting, ...publishing];
      await waitUntil(() => all.every(({ acknowledged }) => acknowledged.length > 0));
      const filler = join(disk, 'filler');
      const begun = Date.now();
      await fill(filler);
      const countRefused = () => posting.reduce((sum, { refused }) => sum + (refused.get('5031') ?? 0), 0);
      await waitUntil(() => countRefused() >= refused_requests);
      const lines = instance.err().split('\n').filter(Boolean);
      const minutes = Math.ceil((Date.now() - begun) / 60_000);
      await rm(filler);
      const acknowledged = all.map((sender) => sender.acknowledged.length);
      await waitUntil(() => all.every((sender, index) => sender.acknowledged.length > (acknowledged[index] ?? 0)));
      await Promise.all(all.map((sender) => sender.stop()));
      const faults = await findStreamFaults(await instance.database(), { posting, publishing });
      if (!lines.some((line) => /No space left|MB free/.test(line))) faults.push('no line of the log names the disk');
      if (lines.length > lines_per_minute * minutes) faults.push(`${lines.length} lines of log in ${minutes} min`);
      const count = all.reduce((sum, sender) => sum + sender.acknowledged.length, 0);
      return { counted: `${count} acknowledged streams, ${countRefused()} requests refused meanwhile`, faults };
    } finally {
      await instance.close();
    }
  } finally {
    execFileSync('umount', ['-l', disk]);
    await rm(disk, { recursive: true, force: true });
  }
}

/** Writes until there is no space left. */
async function fill(path: string): Promise<void> {
  const file = await open(path, 'w');
  const piece = Buffer.alloc(1024 * 1024);
  try {
    for (;;) await file.write(piece);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    await file.close();
  }
}
