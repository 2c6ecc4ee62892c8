import { expect, it } from '@jest/globals';
import { createFinisher } from '../../src/streams/finish.js';

const values = { record: async () => undefined };
const revision = {} as Parameters<ReturnType<typeof createFinisher>>[1];

it('the alarms of an account hold up the acknowledgement of its own streams alone', async () => {
  const finish = createFinisher(values);
  const begun: string[] = [];
  const releases: (() => void)[] = [];
  const part = (account: string, complete: () => Promise<void>) => ({
    account,
    streams: [],
    evaluation: { markOf: () => undefined, complete },
    isMeasured: false,
  });
  const slow = () => {
    begun.push('slow');
    return new Promise<void>((resolve) => releases.push(resolve));
  };
  const waiting = Array.from({ length: 100 }, () => finish(part('greedy', slow), revision));
  await finish(
    part('calm', async () => void begun.push('calm')),
    revision,
  );
  expect(begun).toEqual(['slow', 'slow', 'calm']);
  while (releases.length > 0) {
    for (const release of releases.splice(0)) release();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all(waiting);
  expect(begun).toHaveLength(101);
});

it('a failure is that of the streams of the account, not of others in the batch', async () => {
  const finish = createFinisher(values);
  const failing = { markOf: () => undefined, complete: () => Promise.reject(new Error('no')) };
  const parts = [failing, undefined].map((evaluation, index) => ({
    ...{ account: String(index), streams: [], evaluation, isMeasured: true },
  }));
  const outcomes = await Promise.allSettled(parts.map((part) => finish(part, revision)));
  expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
});
