import type { ChildProcessByStdio } from 'node:child_process';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { Presets, SingleBar } from 'cli-progress';

/** Waits for the end. @throws Error with the last error line of standard error, unless the exit code is 0 */
export async function waitForSuccess(child: ChildProcessByStdio<null, null, Readable>): Promise<void> {
  const [stderr, code] = await Promise.all([
    text(child.stderr),
    new Promise<number | null>((resolve, reject) => child.once('error', reject).once('close', resolve)),
  ]);
  if (code === 0) return;
  const errorLine = stderr.split('\n').findLast((line) => /^\w*(error|exception)\b/i.test(line));
  throw new Error(errorLine ?? (stderr.trim().split('\n').at(-1) || `ended with ${code ?? child.signalCode}`));
}

/** Creates a progress bar on standard error, which appears on a terminal only, and once there is progress. */
export function createProgressBar(total: number): { update: (value: number) => void; stop: () => void } {
  // gracefulExit would keep SIGTERM from ending the process
  const options = { stream: process.stderr, format: '[{bar}] {percentage}%', gracefulExit: false, linewrap: true };
  const bar = new SingleBar(options, Presets.legacy);
  return {
    update(value) {
      if (process.stderr.isTTY && !bar.isActive) bar.start(total, 0);
      bar.update(Math.min(value, total));
    },
    stop: () => bar.stop(),
  };
}
