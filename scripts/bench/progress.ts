import { Presets, SingleBar } from 'cli-progress';

/** One line on standard error. */
export function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Shows on standard error how much of something is done. */
export function progressBar(name: string, total: number): { update(done: number): void; stop(): void } {
  const options = {
    stream: process.stderr,
    format: `${name} [{bar}] {value}/{total} ETA {eta_formatted}`,
    noTTYOutput: true,
    notTTYSchedule: 5000,
    gracefulExit: false,
  };
  const bar = new SingleBar(options, Presets.legacy);
  bar.start(total, 0);
  return {
    update: (done) => bar.update(done),
    stop: () => bar.stop(),
  };
}
