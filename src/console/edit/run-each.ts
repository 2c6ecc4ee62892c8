import { describeError } from '../api/errors.js';

const parallel_requests = 4;

export interface WorkProgress {
  done: number;
  failed: readonly { name: string; reason: string }[];
}

interface Options<T> {
  nameOf(entry: T): string;
  signal?: AbortSignal;
  onProgress?(progress: WorkProgress): void;
}

/**
 * Runs `work` for each entry, some at a time. One that fails does not stop the others; the signal stops those that have
 * not begun.
 */
export async function runEach<T>(
  entries: readonly T[],
  work: (entry: T) => Promise<void>,
  { nameOf, signal, onProgress }: Options<T>,
): Promise<WorkProgress> {
  const waiting = [...entries];
  let progress: WorkProgress = { done: 0, failed: [] };
  const takeTurns = async () => {
    for (let entry = waiting.shift(); entry !== undefined && !signal?.aborted; entry = waiting.shift()) {
      try {
        await work(entry);
        progress = { ...progress, done: progress.done + 1 };
      } catch (error) {
        progress = { ...progress, failed: [...progress.failed, { name: nameOf(entry), reason: describeError(error) }] };
      }
      onProgress?.(progress);
    }
  };
  await Promise.all(Array.from({ length: parallel_requests }, takeTurns));
  return progress;
}
