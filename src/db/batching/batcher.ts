import { max_batch_bytes } from '../../lib/batches.js';

/** Queues a job for the next batch; resolves when that batch is durable. */
export type Submit<Job> = (job: Job) => Promise<void>;

/** Writes a batch. @returns the errors of the jobs that are refused */
type Commit<Job> = (jobs: readonly Job[]) => Promise<ReadonlyMap<Job, Error>> | Promise<void>;

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
  /** Time that a small batch waits for jobs of other senders; default: none. */
  maxWait_ms?: number;
  /** Account of a job: each has a line of its own, and the lines take turns. Default: one line for all. */
  accountOf?: (job: Job) => string;
}

/** A batch of this size waits for no more: its command costs less than its jobs. */
const worthwhile_size = 32;

/** The lines of the accounts, which take turns. */
function createLines<Job>({ size = () => 1, maxBatchSize, bytesOf = () => 0, accountOf = () => '' }: Limits<Job>) {
  /** None is empty; the first one is next. */
  const lines = new Map<string, QueuedJob<Job>[]>();
  const queued = { jobs: 0, size: 0 };

  function add(entry: QueuedJob<Job>): void {
    const account = accountOf(entry.job);
    const line = lines.get(account);
    if (line === undefined) lines.set(account, [entry]);
    else line.push(entry);
    queued.jobs++;
    queued.size += size(entry.job);
  }

  /** Takes as many jobs as a batch has. The line that was served last is the last one. */
  function takeBatch(): QueuedJob<Job>[] {
    const batch: QueuedJob<Job>[] = [];
    let total = 0;
    let bytes = 0;
    for (const [account, line] of lines) {
      const [entry] = line;
      if (entry === undefined) break;
      const jobSize = size(entry.job);
      total += jobSize;
      bytes += bytesOf(entry.job);
      if (batch.length > 0 && (total > maxBatchSize || bytes > max_batch_bytes)) break;
      batch.push(entry);
      line.shift();
      lines.delete(account);
      // to the end: the iteration comes to it again
      if (line.length > 0) lines.set(account, line);
      queued.jobs--;
      queued.size -= jobSize;
    }
    return batch;
  }

  return { queued, add, takeBatch };
}

/** Commits a batch. @returns a function that answers its jobs */
async function commitBatch<Job>(batch: readonly QueuedJob<Job>[], commit: Commit<Job>): Promise<() => void> {
  try {
    const refused = (await commit(batch.map(({ job }) => job))) ?? undefined;
    return () => {
      for (const { job, resolve, reject } of batch) {
        const error = refused?.get(job);
        if (error === undefined) resolve();
        else reject(error);
      }
    };
  } catch (error) {
    return () => {
      for (const { reject } of batch) reject(error);
    };
  }
}

/**
 * Group commit: jobs that arrive while batches are in flight form the next batch, filled from the lines of the accounts in
 * turns. With `maxWait_ms`, a batch also waits until as many jobs are there as arrived in time before, and one more whenever
 * others arrived during a batch: a sender that waits for each answer is alone, and does not wait. The next batch begins
 * before the jobs of the last one are answered. A job rejects with its own error in the result of `commit`, or with the
 * failure of the whole batch.
 */
export function createBatcher<Job>(commit: Commit<Job>, limits: Limits<Job>): Submit<Job> {
  const { maxInFlight, maxWait_ms = 0 } = limits;
  const { queued, add, takeBatch } = createLines(limits);
  let inFlight = 0;
  /** Number of jobs in the last two batches. */
  let recentSizes: readonly [number, number] = [0, 0];
  /** Number of jobs that the next batch waits for. */
  let awaited = 1;
  let wait: NodeJS.Timeout | undefined;

  /**
   * One command costs as much as dozens of jobs, so a second concurrent batch starts only when the queue holds as many as
   * the recent ones: half as many would make the batches smaller and smaller.
   */
  function shouldStartBatch(): boolean {
    if (inFlight === 0) return queued.jobs >= awaited || queued.size >= worthwhile_size;
    return inFlight < maxInFlight && queued.jobs >= Math.max(...recentSizes);
  }

  /** Begins a batch with the jobs that are there by then. */
  function waitForOthers(): void {
    if (queued.jobs === 0 || inFlight > 0) return;
    wait ??= setTimeout(() => {
      awaited = queued.jobs;
      run().catch(() => undefined);
    }, maxWait_ms);
  }

  async function run(): Promise<void> {
    while (shouldStartBatch()) {
      clearTimeout(wait);
      wait = undefined;
      inFlight++;
      const batch = takeBatch();
      recentSizes = [batch.length, recentSizes[0]];
      const answer = await commitBatch(batch, commit);
      inFlight--;
      if (maxWait_ms > 0 && queued.jobs > 0 && awaited < worthwhile_size) awaited++;
      // the database works on the next batch while the answers of this one are written
      if (shouldStartBatch()) setImmediate(answer);
      else answer();
    }
    waitForOthers();
  }

  return (job) =>
    new Promise((resolve, reject) => {
      add({ job, resolve, reject });
      // jobs of this event-loop turn join the batch
      if (shouldStartBatch()) setImmediate(() => run().catch(() => undefined));
      else waitForOthers();
    });
}
