import { Presets, SingleBar } from 'cli-progress';

/** Prints a line on standard error; standard output is for the tables. */
export function printProgress(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Starts a progress bar on standard error. */
export function startProgressBar(name: string, total: number): { update(done: number): void; stop(): void } {
  const options = {
    stream: process.stderr,
    format: `${name} [{bar}] {value}/{total} ETA {eta_formatted}`,
    noTTYOutput: true,
    notTTYSchedule: 5000,
    gracefulExit: false,
  };
  const bar = new SingleBar(options, Presets.legacy);
  bar.start(total, 0);
  return { update: (done) => bar.update(done), stop: () => bar.stop() };
}
