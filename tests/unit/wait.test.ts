import { expect, it } from '@jest/globals';
import { waitFor, waitUntil } from '../support/process.js';

it('names what it waited for, and its last value or failure', async () => {
  const values = [1, 2];
  const isLong = ({ length }: number[]) => length > 2;
  await expect(waitFor(() => values, isLong, 1)).rejects.toThrow(/^not within 1 ms: .*length > 2, but .* \[ 1, 2 \]$/s);
  const fail = () => Promise.reject(new Error('no such device'));
  await expect(waitUntil(fail, 1)).rejects.toThrow(/Promise\.reject.* Error: no such device/s);
});
