import type { AcquireOptions, Shares } from './shares.js';

/**
 * Iterates with a slot during each step, which is given back while the consumer is busy with what it got. No generator, as one
 * that has not begun does not close what it reads.
 */
export function readInSlots<T>(
  shares: Shares,
  account: string,
  values: AsyncIterable<T>,
  options?: Pick<AcquireOptions, 'caller' | 'signal'>,
): AsyncIterableIterator<T> {
  const iterator = values[Symbol.asyncIterator]();
  const close = async (): Promise<IteratorReturnResult<undefined>> => {
    await iterator.return?.();
    return { done: true, value: undefined };
  };
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      try {
        return await shares.run(account, () => iterator.next(), options);
      } catch (error) {
        await close();
        throw error;
      }
    },
    return: close,
  };
}
