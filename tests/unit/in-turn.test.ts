import { expect, it } from '@jest/globals';
import { createTurns } from '../../src/in-turn.js';

it('runs works of one key one after another, also after a failure, and those of others meanwhile', async () => {
  const inTurn = createTurns();
  const log: string[] = [];
  const ends: (() => void)[] = [];
  const run = (key: string, name: string) =>
    inTurn(key, async () => {
      log.push(`${name} begins`);
      await new Promise<void>((resolve) => ends.push(resolve));
      log.push(`${name} ends`);
      if (name === 'first') throw new Error('first failed');
      return name;
    });
  const [first, second, other] = [run('a', 'first'), run('a', 'second'), run('b', 'other')];
  const failed = expect(first).rejects.toThrow('first failed');
  await new Promise(setImmediate);
  expect(log).toEqual(['first begins', 'other begins']);
  ends[0]?.();
  await failed;
  await new Promise(setImmediate);
  for (const end of ends) end();
  expect(await Promise.all([second, other])).toEqual(['second', 'other']);
  expect(log.indexOf('second begins')).toBeGreaterThan(log.indexOf('first ends'));
  expect(await inTurn('a', async () => 'later')).toBe('later');
});
