import { describe, expect, it } from '@jest/globals';
import { createKeyedMutex, type LockKeys } from '../../src/lib/keyed-mutex.js';

/** Starts work that ends when the test says so, and logs what begins and ends. */
function createWorks() {
  const mutex = createKeyedMutex();
  const log: string[] = [];
  const ends = new Map<string, () => void>();
  return {
    log,
    start: (name: string, keys: string | LockKeys) =>
      mutex(keys, async () => {
        log.push(`${name} begins`);
        await new Promise<void>((resolve) => ends.set(name, resolve));
        log.push(`${name} ends`);
        if (name === 'failing') throw new Error('failing failed');
        return name;
      }),
    async end(name: string) {
      ends.get(name)?.();
      await new Promise(setImmediate);
    },
  };
}

describe('a keyed mutex', () => {
  it('runs work of one key one after another, also after a failure, and that of other keys meanwhile', async () => {
    const { log, start, end } = createWorks();
    const failed = expect(start('failing', 'a')).rejects.toThrow('failing failed');
    const [second, other] = [start('second', 'a'), start('other', 'b')];
    expect(log).toEqual(['failing begins', 'other begins']);
    await end('failing');
    await failed;
    expect(log).toEqual(['failing begins', 'other begins', 'failing ends', 'second begins']);
    await end('second');
    await end('other');
    expect(await Promise.all([second, other])).toEqual(['second', 'other']);
    const later = start('later', 'a');
    await end('later');
    expect(await later).toBe('later');
  });

  it('lets shared keys be held together, and exclusive ones alone, in the order of the calls', async () => {
    const { log, start, end } = createWorks();
    const shared = { exclusive: [], shared: ['parent'] };
    const works = [
      start('child 1', { exclusive: ['child 1'], shared: ['parent'] }),
      start('child 2', shared),
      start('parent', { exclusive: ['parent'], shared: [] }),
      start('child 3', shared),
    ];
    expect(log).toEqual(['child 1 begins', 'child 2 begins']);
    await end('child 2');
    expect(log.at(-1)).toBe('child 2 ends');
    await end('child 1');
    expect(log.slice(-2)).toEqual(['child 1 ends', 'parent begins']);
    await end('parent');
    expect(log.slice(-2)).toEqual(['parent ends', 'child 3 begins']);
    await end('child 3');
    await Promise.all(works);
  });

  it('takes a key once that is named twice or both ways', async () => {
    const { start, end } = createWorks();
    const work = start('work', { exclusive: ['a', 'a'], shared: ['a'] });
    await end('work');
    expect(await work).toBe('work');
  });
});
