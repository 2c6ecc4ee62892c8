/** Where many callers hand in what one write can take. */
export type Submit<Job> = (job: Job) => Promise<void>;

interface Waiting<Job> {
  job: Job;
  resolve: () => void;
  reject: (reason: unknown) => void;
}

interface Limits<Job> {
  /** What one job counts towards `most`. */
  size: (job: Job) => number;
  most: number;
  /** Batches under way at once, where there are jobs enough for more than one. */
  parallel: number;
}

/**
 * All jobs that arrive while batches are under way leave together as the next one, and each is answered after `commit`
 * has: with what `commit` says is wrong with that job, or the failure of the whole batch.
 */
export function groupCommit<Job>(
  commit: (jobs: readonly Job[]) => Promise<ReadonlyMap<Job, Error>>,
  { size, most, parallel }: Limits<Job>,
): Submit<Job> {
  const waiting: Waiting<Job>[] = [];
  let under_way = 0;
  /** Jobs of the last two batches. */
  let last: readonly [number, number] = [0, 0];

  /** A command costs as much as dozens of jobs in it: a second batch is begun only for about as many as usual. */
  function isWorthwhile(): boolean {
    if (under_way === 0) return waiting.length > 0;
    return under_way < parallel && waiting.length >= Math.max(...last) / 2;
  }

  function take(): Waiting<Job>[] {
    let count = 0;
    let total = 0;
    for (const { job } of waiting) {
      total += size(job);
      if (count > 0 && total > most) break;
      count++;
    }
    last = [count, last[0]];
    return waiting.splice(0, count);
  }

  async function run(): Promise<void> {
    while (isWorthwhile()) {
      under_way++;
      const batch = take();
      try {
        const refused = await commit(batch.map(({ job }) => job));
        for (const { job, resolve, reject } of batch) {
          const error = refused.get(job);
          if (error === undefined) resolve();
          else reject(error);
        }
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
      under_way--;
    }
  }

  return (job) =>
    new Promise((resolve, reject) => {
      waiting.push({ job, resolve, reject });
      // the next turn of the loop, so that what arrives in this one goes along
      if (isWorthwhile()) setImmediate(run);
    });
}
