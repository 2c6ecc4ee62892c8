import { randomBytes } from 'node:crypto';
import mongoose from 'mongoose';

export type Id = InstanceType<typeof mongoose.mongo.UUID>;

/**
 * Makes internal ids whose order is the order of creation, which settles ties in lists (contract 6): UUID version 7
 * (RFC 9562) with the fraction of the millisecond in `rand_a`, so that ids of several processes interleave rightly too.
 * @param clock epoch milliseconds with a fraction
 */
export function createIdGenerator(clock: () => number): () => Id {
  let last = 0;
  let random: Buffer = Buffer.alloc(0);
  return () => {
    last = Math.max(Math.floor(clock() * 4096), last + 1);
    // asking for a few bytes costs as much as asking for many
    if (random.length === 0) random = randomBytes(4096);
    const bytes = random.subarray(0, 16);
    random = random.subarray(16);
    bytes.writeUIntBE(Math.floor(last / 4096), 0, 6);
    bytes.writeUInt16BE(0x7000 | (last % 4096), 6);
    bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f);
    return new mongoose.mongo.UUID(bytes);
  };
}

/** The least id that can be made at `moment` (epoch milliseconds) or later. */
export function minIdAt(moment: number): Id {
  const bytes = Buffer.alloc(16);
  bytes.writeUIntBE(Math.max(0, Math.floor(moment)), 0, 6);
  return new mongoose.mongo.UUID(bytes);
}
