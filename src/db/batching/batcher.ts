import { max_batch_bytes } from '../../lib/batches.js';

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
  /** Account of a job: each has a line of its own, and the lines take turns. Default: one line for all. */
  accountOf?: (job: Job) => string;
}

/** Takes jobs from the lines in turns, as many as a batch has. The line that was served last is the last one. */
function takeBatch<Job>(
  lines: Map<string, QueuedJob<Job>[]>,
  { size, maxBatchSize, bytesOf }: Required<Pick<Limits<Job>, 'size' | 'maxBatchSize' | 'bytesOf'>>,
): QueuedJob<Job>[] {
  const batch: QueuedJob<Job>[] = [];
  let total = 0;
  let bytes = 0;
  for (const [account, line] of lines) {
    const [entry] = line;
    if (entry === undefined) break;
    total += size(entry.job);
    bytes += bytesOf(entry.job);
    if (batch.length > 0 && (total > maxBatchSize || bytes > max_batch_bytes)) break;
    batch.push(entry);
    line.shift();
    lines.delete(account);
    // to the end: the iteration comes to it again
    if (line.length > 0) lines.set(account, line);
  }
  return batch;
}

/**
 * Group commit: jobs that arrive while batches are in flight form the next batch, filled from the lines of the accounts in
 * turns. A job rejects with its own error in the result of `commit`, or with the failure of the whole batch.
 */
export function createBatcher<Job>(
  commit: (jobs: readonly Job[]) => Promise<ReadonlyMap<Job, Error>> | Promise<void>,
  { size = () => 1, maxBatchSize, bytesOf = () => 0, maxInFlight, accountOf = () => '' }: Limits<Job>,
): Submit<Job> {
  /** None is empty; the first one is next. */
  const lines = new Map<string, QueuedJob<Job>[]>();
  let queued = 0;
  let inFlight = 0;
  /** Number of jobs in the last two batches. */
  let recentSizes: readonly [number, number] = [0, 0];

  /**
   * One command costs as much as dozens of jobs, so a second concurrent batch starts only when the queue holds as many as
   * the recent ones: half as many would make the batches smaller and smaller.
   */
  function shouldStartBatch(): boolean {
    if (inFlight === 0) return queued > 0;
    return inFlight < maxInFlight && queued >= Math.max(...recentSizes);
  }

  function enqueue(entry: QueuedJob<Job>): void {
    const account = accountOf(entry.job);
    const line = lines.get(account);
    if (line === undefined) lines.set(account, [entry]);
    else line.push(entry);
    queued++;
  }

  async function run(): Promise<void> {
    while (shouldStartBatch()) {
      inFlight++;
      const batch = takeBatch(lines, { size, maxBatchSize, bytesOf });
      queued -= batch.length;
      recentSizes = [batch.length, recentSizes[0]];
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
      enqueue({ job, resolve, reject });
      // jobs of this event-loop turn join the batch
      if (shouldStartBatch()) setImmediate(() => run().catch(() => undefined));
    });
}
