import type { mongo } from 'mongoose';
import { createIdGenerator } from '../../src/db/ids.js';
import { copyStream } from '../support/stream-copies.js';
import { create, device, type Target } from './target.js';

type StoredObject = mongo.Document & { _id: mongo.UUID };

interface CopyOptions {
  count: number;
  /** Fields that differ from the sample, by the number of the copy. */
  change?: (number: number) => object;
}

const newId = createIdGenerator(() => performance.timeOrigin + performance.now());

/** Inserts copies of an object that the service has stored, as creating that many over HTTP would take minutes. */
export async function insertCopies(
  target: Pick<Target, 'database'>,
  collectionName: string,
  sampleFilter: object,
  { count, change = () => ({}) }: CopyOptions,
): Promise<void> {
  const collection = (await target.database()).collection<StoredObject>(collectionName);
  const sample = await collection.findOne(sampleFilter);
  if (sample === null) throw new Error(`there is no object to copy in ${collectionName}`);
  const batch_size = JSON.stringify(sample).length > 10_000 ? 100 : 5000;
  for (let inserted = 0; inserted < count; inserted += batch_size) {
    const length = Math.min(batch_size, count - inserted);
    const copies = Array.from({ length }, (_, n) => ({ ...sample, ...change(inserted + n), _id: newId() }));
    await collection.insertMany(copies, { ordered: false });
  }
}

/** Inserts copies of a stream that the service has stored. */
export async function insertStreamCopies(
  target: Pick<Target, 'database'>,
  sampleFilter: object,
  { count, place = () => ({}) }: { count: number; place?: (number: number) => Parameters<typeof copyStream>[1] },
): Promise<void> {
  const collection = (await target.database()).collection('streams');
  const sample = await collection.findOne(sampleFilter);
  if (sample === null) throw new Error('there is no stream to copy');
  const batch_size = JSON.stringify(sample).length > 10_000 ? 100 : 5000;
  for (let inserted = 0; inserted < count; inserted += batch_size) {
    const length = Math.min(batch_size, count - inserted);
    const copies = Array.from({ length }, (_, n) => inserted + n + 1).map((number) =>
      copyStream(sample, { number, ...place(number) }),
    );
    await collection.insertMany(copies as mongo.OptionalUnlessRequiredId<mongo.Document>[], { ordered: false });
  }
}

/** List of the streams that `insertLargeStreams` has inserted. */
export const largeStreamsPath = `/devices/${device}/streams/?protocol=large`;

/** Inserts streams of 60 KB of the device `pump`, of 2001, where no attack has sent any. */
export async function insertLargeStreams(target: Target, count: number): Promise<void> {
  await create(target, `devices/${device}/streams`, { protocol: 'large', data: { text: 'x'.repeat(60_000) } });
  await insertStreamCopies(target, { protocol: 'large' }, { count, place: (n) => ({ at: 1_000_000_000 + n }) });
}
