/** Where many callers hand in what one write can take. */
export type Submit<Job> = (job: Job) => Promise<void>;

interface QueuedJob<Job> {
  job: Job;
  resolve: () => void;
  reject: (reason: unknown) => void;
}

interface Limits<Job> {
  /** What one job counts towards `most`. */
  size: (job: Job) => number;
  maxBatchSize: number;
  /** Batches under way at once, where there are jobs enough for more than one. */
  maxInFlight: number;
}

/**
 * All jobs that arrive while batches are under way leave together as the next one, and each is answered after `commit`
 * has: with what `commit` says is wrong with that job, or the failure of the whole batch.
 */
export function createBatcher<Job>(
  commit: (jobs: readonly Job[]) => Promise<ReadonlyMap<Job, Error>>,
  { size, maxBatchSize, maxInFlight }: Limits<Job>,
): Submit<Job> {
  const queue: QueuedJob<Job>[] = [];
  let inFlight = 0;
  /** Jobs of the last two batches. */
  let recentSizes: readonly [number, number] = [0, 0];

  /** A command costs as much as dozens of jobs in it: a second batch is begun only for about as many as usual. */
  function shouldStartBatch(): boolean {
    if (inFlight === 0) return queue.length > 0;
    return inFlight < maxInFlight && queue.length >= Math.max(...recentSizes) / 2;
  }

  function take(): QueuedJob<Job>[] {
    let count = 0;
    let total = 0;
    for (const { job } of queue) {
      total += size(job);
      if (count > 0 && total > maxBatchSize) break;
      count++;
    }
    recentSizes = [count, recentSizes[0]];
    return queue.splice(0, count);
  }

  async function run(): Promise<void> {
    while (shouldStartBatch()) {
      inFlight++;
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
      inFlight--;
    }
  }

  return (job) =>
    new Promise((resolve, reject) => {
      queue.push({ job, resolve, reject });
      // the next turn of the loop, so that what arrives in this one goes along
      if (shouldStartBatch()) setImmediate(run);
    });
}
