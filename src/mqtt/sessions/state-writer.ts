import { createBatcher } from '../../db/batching/batcher.js';
import type { Database } from '../../db/database.js';
import { type ForwardedMessage, insertForwarded } from '../store/forwards.js';
import { splitKey } from '../store/keys.js';
import {
  applyQueueChanges,
  applyReceivedChanges,
  insertQueued,
  type QueueChange,
  type QueuedMessage,
  type ReceivedChange,
} from '../store/queue.js';
import { type RetainedChange, writeRetained } from '../store/retained.js';

const max_batch_size = 1000;
/** Batches of one kind follow each other, so that changes of a document are applied in their order. */
const maxInFlight = 1;

const ownerOf = ({ _id }: { _id: string }) => splitKey(_id)[0];

/** A message that other sessions and instances are to get. */
export interface StoredPublish {
  queued: readonly QueuedMessage[];
  forwarded: ForwardedMessage;
  /** A client of another instance is to get the message. */
  isWantedElsewhere(): boolean;
}

/** Writes the state of all sessions; each call resolves when the write is durable. Concurrent ones share a command. */
export type StateWriter = ReturnType<typeof createStateWriter>;

/** Creates the writer of a process. */
export function createStateWriter(db: Database) {
  const batch = <Job>(
    write: (jobs: readonly Job[]) => Promise<void>,
    options: { accountOf: (job: Job) => string; bytesOf?: (job: Job) => number },
  ) => createBatcher<Job>(write, { maxBatchSize: max_batch_size, maxInFlight, ...options });
  return {
    publish: batch<StoredPublish>(
      async (jobs) => {
        const queued = jobs.flatMap((job) => job.queued);
        if (queued.length > 0) await insertQueued(db, queued);
        // not before: a client may have come to another instance and read its queue too early
        const wanted = jobs.filter((job) => job.isWantedElsewhere()).map(({ forwarded }) => forwarded);
        if (wanted.length > 0) await insertForwarded(db, wanted);
      },
      {
        accountOf: ({ forwarded }) => forwarded.account,
        bytesOf: ({ queued, forwarded }) => (queued.length + 1) * forwarded.payload.length,
      },
    ),
    changeQueue: batch<QueueChange>((changes) => applyQueueChanges(db, changes), { accountOf: ownerOf }),
    changeReceived: batch<ReceivedChange>((changes) => applyReceivedChanges(db, changes), {
      accountOf: ownerOf,
    }),
    retain: batch<RetainedChange>((changes) => writeRetained(db, changes), {
      accountOf: ({ account }) => account,
      bytesOf: ({ payload }) => payload.length,
    }),
  };
}
