import { randomBytes } from 'node:crypto';
import mongoose from 'mongoose';

export type Id = InstanceType<typeof mongoose.mongo.UUID>;

/**
 * Creates a generator of internal ids in the order of creation, which decides ties (reference/lists.md#sorting): UUID
 * version 7 (RFC 9562) with the fraction of the millisecond in `rand_a`, which also orders ids of several processes.
 * @param clock epoch milliseconds with a fraction
 */
export function createIdGenerator(clock: () => number): () => Id {
  let last = 0;
  let random: Buffer = Buffer.alloc(0);
  return () => {
    last = Math.max(Math.floor(clock() * 4096), last + 1);
    // a call for 16 bytes takes as long as one for 4096
    if (random.length === 0) random = randomBytes(4096);
    const bytes = random.subarray(0, 16);
    random = random.subarray(16);
    bytes.writeUIntBE(Math.floor(last / 4096), 0, 6);
    bytes.writeUInt16BE(0x7000 | (last % 4096), 6);
    bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f);
    return new mongoose.mongo.UUID(bytes);
  };
}

/** Returns the smallest id generated at `moment` (epoch milliseconds) or later. */
export function buildMinId(moment: number): Id {
  const bytes = Buffer.alloc(16);
  bytes.writeUIntBE(Math.max(0, Math.floor(moment)), 0, 6);
  return new mongoose.mongo.UUID(bytes);
}

/** Returns the time at which an id was generated (epoch milliseconds). */
export function readIdTime(id: Id): number {
  return Buffer.from(id.buffer).readUIntBE(0, 6);
}

/** Derives the id of the part `index` of something that has an id; the parts of one id are in order. */
export function deriveId(id: Id, index: number): Id {
  const bytes = Buffer.from(id.buffer);
  bytes.writeUInt16BE(index % 65_536, 14);
  return new mongoose.mongo.UUID(bytes);
}

/** Copies an id that comes from the database: it is a view of the whole reply, which a cached one would keep in memory. */
export function copyId(id: Id): Id {
  return new mongoose.mongo.UUID(Buffer.from(id.buffer));
}
