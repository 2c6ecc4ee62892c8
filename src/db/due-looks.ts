import { createBatcher } from './batching/batcher.js';
import type { DueLook, FindDue } from './database.js';
import { runPipeline } from './raw-find.js';

interface Job {
  looks: readonly DueLook[];
  isDue: boolean;
}

const limits = { maxBatchSize: 100, maxInFlight: 2 };

/** Creates the `FindDue` of a process: jobs that look at the same time share one command. */
export function createDueFinder(): FindDue {
  async function commit(jobs: readonly Job[]): Promise<void> {
    const parts = jobs.flatMap(({ looks }, job) =>
      looks.map(({ collection, filter }) => ({
        collection,
        pipeline: [{ $match: filter }, { $limit: 1 }, { $project: { _id: 0, job: { $literal: job } } }],
      })),
    );
    const [first, ...others] = parts;
    if (first === undefined) return;
    const unions = others.map(({ collection, pipeline }) => ({
      $unionWith: { coll: collection.collectionName, pipeline },
    }));
    const found = await runPipeline<{ job: number }>(first.collection, [...first.pipeline, ...unions]);
    for (const [index, job] of jobs.entries()) job.isDue = found.some((look) => look.job === index);
  }

  const submit = createBatcher(commit, limits);
  return async (looks) => {
    const job: Job = { looks, isDue: false };
    await submit(job);
    return job.isDue;
  };
}
