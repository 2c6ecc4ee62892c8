/** Queues a job for the next batch; resolves when that batch is durable. */
export type Submit<Job> = (job: Job) => Promise<void>;

interface QueuedJob<Job> {
  job: Job;
  resolve: () => void;
  reject: (reason: unknown) => void;
}

interface Limits<Job> {
  /** Weight of a job towards `maxBatchSize`; default: 1. */
  size?: (job: Job) => number;
  maxBatchSize: number;
  /** Bytes of a job, if jobs can be large. */
  bytesOf?: (job: Job) => number;
  /** Concurrent batches, if enough jobs are queued for more than one. */
  maxInFlight: number;
}

/** The driver serializes a batch in one turn of the event loop; this much, all in short values, takes about 40 ms. */
const max_batch_bytes = 512 * 1024;

/**
 * Group commit: jobs that arrive while batches are in flight form the next batch. A job rejects with its own error in the
 * result of `commit`, or with the failure of the whole batch.
 */
export function createBatcher<Job>(
  commit: (jobs: readonly Job[]) => Promise<ReadonlyMap<Job, Error>> | Promise<void>,
  { size = () => 1, maxBatchSize, bytesOf = () => 0, maxInFlight }: Limits<Job>,
): Submit<Job> {
  const queue: QueuedJob<Job>[] = [];
  let inFlight = 0;
  /** Number of jobs in the last two batches. */
  let recentSizes: readonly [number, number] = [0, 0];

  /**
   * One command costs as much as dozens of jobs, so a second concurrent batch starts only when the queue holds as many as
   * the recent ones: half as many would make the batches smaller and smaller.
   */
  function shouldStartBatch(): boolean {
    if (inFlight === 0) return queue.length > 0;
    return inFlight < maxInFlight && queue.length >= Math.max(...recentSizes);
  }

  function take(): QueuedJob<Job>[] {
    let count = 0;
    let total = 0;
    let bytes = 0;
    for (const { job } of queue) {
      total += size(job);
      bytes += bytesOf(job);
      if (count > 0 && (total > maxBatchSize || bytes > max_batch_bytes)) break;
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
        const refused = (await commit(batch.map(({ job }) => job))) ?? undefined;
        for (const { job, resolve, reject } of batch) {
          const error = refused?.get(job);
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
      // jobs of this event-loop turn join the batch
      if (shouldStartBatch()) setImmediate(run);
    });
}
