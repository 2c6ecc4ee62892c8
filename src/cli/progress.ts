import { SingleBar } from 'cli-progress';

export interface Progress {
  show(done: number, total: number): void;
  stop(): void;
}

/** Creates a progress bar on a terminal, otherwise a line for every tenth. */
export function createProgress(stream: NodeJS.WriteStream, unit: string): Progress {
  const format = `{bar} {value}/{total} ${unit}, {duration_formatted}, ETA {eta_formatted}`;
  const bar = new SingleBar({ stream, format });
  let [shownTenths, isStarted] = [0, false];
  return {
    show(done, total) {
      if (stream.isTTY) {
        if (!isStarted) bar.start(total, 0);
        isStarted = true;
        bar.setTotal(total);
        bar.update(done);
        return;
      }
      const tenths = Math.floor((done * 10) / total);
      if (tenths > shownTenths) stream.write(`${done}/${total} ${unit}\n`);
      shownTenths = tenths;
    },
    stop: () => bar.stop(),
  };
}
