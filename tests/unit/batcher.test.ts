import { describe, expect, it } from '@jest/globals';
import { createBatcher } from '../../src/db/batching/batcher.js';

interface Job {
  id: number;
  size: number;
}

/** A `commit` whose batches the test lets go one by one. */
function gate() {
  const begun: { ids: number[]; finish(refused?: ReadonlyMap<Job, Error>): void; fail(error: Error): void }[] = [];
  const commit = (jobs: readonly Job[]) =>
    new Promise<ReadonlyMap<Job, Error>>((resolve, reject) => {
      begun.push({ ids: jobs.map(({ id }) => id), finish: (refused = new Map()) => resolve(refused), fail: reject });
    });
  const batch = (index: number) => {
    const found = begun[index];
    if (found === undefined) throw new Error(`there is no batch ${index}, only ${JSON.stringify(begun)}`);
    return found;
  };
  return { commit, batch, ids: () => begun.map(({ ids }) => ids) };
}

const limits = { size: ({ size }: Job) => size, maxBatchSize: 10, maxInFlight: 1 };
const turn = () => new Promise((resolve) => setImmediate(resolve));
const job = (id: number, size = 1): Job => ({ id, size });

describe('group commit', () => {
  it('writes what arrives in one turn of the loop as one', async () => {
    const { commit, batch, ids } = gate();
    const submit = createBatcher(commit, limits);
    const answers = [1, 2, 3].map((id) => submit(job(id)));
    await turn();
    expect(ids()).toEqual([[1, 2, 3]]);
    batch(0).finish();
    await Promise.all(answers);
  });

  it('answers nobody before the write that holds the job has ended', async () => {
    const { commit, batch } = gate();
    const submit = createBatcher(commit, limits);
    let answered = '';
    const first = submit(job(1)).then(() => {
      answered += 'first ';
    });
    await turn();
    const second = submit(job(2)).then(() => {
      answered += 'second';
    });
    await turn();
    expect(answered).toBe('');
    batch(0).finish();
    await first;
    await turn();
    expect(answered).toBe('first ');
    batch(1).finish();
    await second;
    expect(answered).toBe('first second');
  });

  it('begins the next write before it answers the last one', async () => {
    const { commit, batch, ids } = gate();
    const submit = createBatcher(commit, limits);
    let begunBefore = 0;
    const first = submit(job(1)).then(() => {
      begunBefore = ids().length;
    });
    await turn();
    const second = submit(job(2));
    batch(0).finish();
    await first;
    expect(begunBefore).toBe(2);
    batch(1).finish();
    await second;
  });

  it('gathers what arrives during a write for the next, in order', async () => {
    const { commit, batch, ids } = gate();
    const submit = createBatcher(commit, limits);
    const answers = [submit(job(1))];
    await turn();
    for (const id of [2, 3, 4]) {
      answers.push(submit(job(id)));
      await turn();
    }
    expect(ids()).toEqual([[1]]);
    batch(0).finish();
    await answers[0];
    await turn();
    expect(ids()).toEqual([[1], [2, 3, 4]]);
    batch(1).finish();
    await Promise.all(answers);
  });

  it('keeps no more batches under way than it may', async () => {
    const { commit, batch, ids } = gate();
    const submit = createBatcher(commit, { ...limits, maxInFlight: 2 });
    const answers: Promise<void>[] = [];
    for (const id of [1, 2, 3, 4]) {
      answers.push(submit(job(id)));
      await turn();
    }
    expect(ids()).toEqual([[1], [2]]);
    batch(1).finish();
    await answers[1];
    await turn();
    expect(ids()).toEqual([[1], [2], [3, 4]]);
    batch(0).finish();
    batch(2).finish();
    await Promise.all(answers);
    answers.push(submit(job(5)));
    await turn();
    expect(ids().at(-1)).toEqual([5]);
    batch(3).finish();
    await Promise.all(answers);
  });

  it('begins a second batch only for as many jobs as usual', async () => {
    const { commit, batch, ids } = gate();
    const submit = createBatcher(commit, { ...limits, maxInFlight: 2 });
    const answers = [1, 2, 3].map((id) => submit(job(id)));
    await turn();
    answers.push(...[4, 5].map((id) => submit(job(id))));
    await turn();
    expect(ids()).toEqual([[1, 2, 3]]);
    answers.push(submit(job(6)));
    await turn();
    expect(ids()).toEqual([
      [1, 2, 3],
      [4, 5, 6],
    ]);
    answers.push(submit(job(7)));
    await turn();
    batch(0).finish();
    await turn();
    expect(ids()).toHaveLength(2);
    batch(1).finish();
    await turn();
    expect(ids().at(-1)).toEqual([7]);
    batch(2).finish();
    await Promise.all(answers);
  });

  it('fills a batch up to its size, and takes a larger job alone', async () => {
    const { commit, batch, ids } = gate();
    const submit = createBatcher(commit, limits);
    const answers = [job(1, 6), job(2, 4), job(3, 1), job(4, 50), job(5, 10)].map(submit);
    for (const index of [0, 1, 2, 3]) {
      await turn();
      batch(index).finish();
      await turn();
    }
    await Promise.all(answers);
    expect(ids()).toEqual([[1, 2], [3], [4], [5]]);
  });

  it('fills a batch up to 512 KiB, and takes a larger job alone', async () => {
    const { commit, batch, ids } = gate();
    const bytesOf = ({ size }: Job) => size * 1024;
    const submit = createBatcher(commit, { size: () => 1, maxBatchSize: 10, bytesOf, maxInFlight: 1 });
    const answers = [job(1, 300), job(2, 212), job(3, 1), job(4, 900), job(5, 512), job(6, 0)].map(submit);
    for (const index of [0, 1, 2, 3]) {
      await turn();
      batch(index).finish();
      await turn();
    }
    await Promise.all(answers);
    expect(ids()).toEqual([[1, 2], [3], [4], [5, 6]]);
  });

  it('fills batches from the lines of accounts in turns', async () => {
    const { commit, batch, ids } = gate();
    // the hundreds are the account
    const accountOf = ({ id }: Job) => String(Math.floor(id / 100));
    const submit = createBatcher(commit, { ...limits, maxBatchSize: 4, accountOf });
    const answers = [101, 102, 103, 104, 105, 106, 201, 301, 202].map((id) => submit(job(id)));
    for (const index of [0, 1, 2]) {
      await turn();
      if (index === 1) answers.push(submit(job(401)));
      batch(index).finish();
      await turn();
    }
    await Promise.all(answers);
    expect(ids()).toEqual([
      [101, 201, 301, 102],
      [202, 103, 104, 105],
      [106, 401],
    ]);
  });

  it('refuses one job of a batch alone', async () => {
    const { commit, batch } = gate();
    const submit = createBatcher(commit, limits);
    const jobs = [job(1), job(2), job(3)];
    const answers = jobs.map(submit);
    await turn();
    batch(0).finish(new Map([[jobs[1] ?? job(0), new Error('no')]]));
    const outcomes = await Promise.allSettled(answers);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  });

  it('fails all jobs of a batch that fails, however it does, and goes on with the next', async () => {
    const { commit, batch } = gate();
    let thrown = 0;
    const submit = createBatcher<Job>((jobs) => {
      if (thrown++ === 0) throw new Error('at once');
      return commit(jobs);
    }, limits);
    await expect(Promise.all([submit(job(1)), submit(job(2))])).rejects.toThrow('at once');
    const late = [submit(job(3)), submit(job(4))];
    await turn();
    const next = submit(job(5));
    batch(0).fail(new Error('later'));
    const outcomes = await Promise.allSettled(late);
    expect(outcomes.map((outcome) => outcome.status === 'rejected' && outcome.reason.message)).toEqual([
      'later',
      'later',
    ]);
    await turn();
    batch(1).finish();
    await next;
  });

  it('answers each of 2,000 jobs once, in batches, whatever the order', async () => {
    let largest = 0;
    let seen = 0;
    const submit = createBatcher<Job>(
      async (jobs) => {
        largest = Math.max(largest, jobs.length);
        seen += jobs.length;
        for (let left = jobs.length % 7; left > 0; left--) await turn();
        return new Map(jobs.filter(({ id }) => id % 10 === 0).map((one) => [one, new Error(String(one.id))]));
      },
      { ...limits, maxBatchSize: 100, maxInFlight: 2 },
    );
    const answers: Promise<void>[] = [];
    for (let id = 1; id <= 2000; id++) {
      answers.push(submit(job(id)));
      if (id % 13 === 0) await turn();
    }
    const outcomes = await Promise.allSettled(answers);
    const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason.message] : []));
    expect(refused).toEqual(Array.from({ length: 200 }, (_, index) => String(10 * (index + 1))));
    expect(seen).toBe(2000);
    expect(largest).toBeGreaterThan(1);
    expect(largest).toBeLessThanOrEqual(100);
  });

  describe('that waits for others', () => {
    const never_ms = 2 ** 31 - 1;

    it('lets a sender that waits for its answers wait for nobody', async () => {
      const { commit, batch, ids } = gate();
      const submit = createBatcher(commit, { ...limits, maxWait_ms: never_ms });
      for (const id of [1, 2, 3]) {
        const answer = submit(job(id));
        await turn();
        batch(id - 1).finish();
        await answer;
      }
      expect(ids()).toEqual([[1], [2], [3]]);
    });

    it('waits for one more than before once others arrive during a batch', async () => {
      const { commit, batch, ids } = gate();
      const submit = createBatcher(commit, { ...limits, maxWait_ms: never_ms });
      const answers = [submit(job(1))];
      await turn();
      answers.push(submit(job(2)));
      batch(0).finish();
      await turn();
      expect(ids()).toEqual([[1]]);
      answers.push(submit(job(3)));
      await turn();
      expect(ids()).toEqual([[1], [2, 3]]);
      answers.push(submit(job(4)), submit(job(5)));
      batch(1).finish();
      await turn();
      expect(ids()).toHaveLength(2);
      answers.push(submit(job(6)));
      await turn();
      expect(ids()).toEqual([[1], [2, 3], [4, 5, 6]]);
      batch(2).finish();
      await Promise.all(answers);
    });

    it('begins with those that are there in the end, and waits for as many the next time', async () => {
      const { commit, batch, ids } = gate();
      const submit = createBatcher(commit, { ...limits, maxWait_ms: 1 });
      const answers = [submit(job(1)), submit(job(2))];
      await turn();
      answers.push(submit(job(3)));
      batch(0).finish();
      while (ids().length < 2) await turn();
      expect(ids()).toEqual([[1, 2], [3]]);
      batch(1).finish();
      await Promise.all(answers);
      const last = submit(job(4));
      await turn();
      expect(ids().at(-1)).toEqual([4]);
      batch(2).finish();
      await last;
    });

    it('waits no more once the jobs are worth a command', async () => {
      const { commit, batch, ids } = gate();
      const submit = createBatcher(commit, { ...limits, maxBatchSize: 100, maxWait_ms: never_ms });
      const answers = [submit(job(1))];
      await turn();
      answers.push(submit(job(2, 31)));
      batch(0).finish();
      await turn();
      expect(ids()).toEqual([[1]]);
      // `awaited` jobs are there: two
      answers.push(submit(job(3)));
      await turn();
      batch(1).finish();
      answers.push(submit(job(4, 32)));
      await turn();
      expect(ids()).toEqual([[1], [2, 3], [4]]);
      batch(2).finish();
      await Promise.all(answers);
    });
  });
});
