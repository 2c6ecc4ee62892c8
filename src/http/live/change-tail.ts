import {
  type Change,
  formatClusterTime,
  openChangeStream,
  parseChange,
  parseClusterTime,
  readClusterTime,
} from '../../db/change-stream.js';
import type { Database, Log } from '../../db/database.js';
import { createTail, type FeedEntry, type FeedPosition, type Tail, type TailReader } from './tail.js';

/** Changes are collected for a short time: devices are to get what is for them within 50 ms. */
const cycle_ms = 10;

interface Options<Entry> {
  collection: string;
  /** Stages that select the changes and leave out what `complete` does not read. */
  pipeline: readonly object[];
  /** Describes each change, undefined for one that is of no interest. */
  complete(changes: readonly Change[]): Promise<readonly (Details<Entry> | undefined)[]>;
}

type Details<Entry> = Omit<Entry, keyof FeedEntry> & { account: string };

/** A change for the devices that wait for it; it is sent by others, who read what is stored. */
export type ChangeEntry<Members> = FeedEntry & Members;

/** Creates a tail of the changes of one collection, read once per process while there are readers. */
export function createChangeTail<Members extends object>(
  db: Database,
  log: Log,
  options: Options<ChangeEntry<Members>>,
): Tail<ChangeEntry<Members>> {
  return createTail<ChangeEntry<Members>>({ log, open: (from) => openReader(db, options, from) });
}

async function openReader<Members extends object>(
  db: Database,
  { collection, pipeline, complete }: Options<ChangeEntry<Members>>,
  from?: FeedPosition,
): Promise<TailReader<ChangeEntry<Members>>> {
  const time = from?.id ?? formatClusterTime(await readClusterTime(db));
  let position = from ?? { id: time, token: '' };
  const changes = await openChangeStream(db, {
    collection,
    pipeline,
    cycle_ms,
    ...(position.token === '' ? { startAt: parseClusterTime(time) } : { resumeToken: { _data: position.token } }),
  });
  return {
    get position() {
      return position;
    },
    async next() {
      const batch = await changes.next();
      const parsed = batch.changes.map(parseChange);
      const described = parsed.length === 0 ? [] : await complete(parsed);
      const entries = parsed.flatMap(({ clusterTime }, index) => {
        const members = described[index];
        const entry = { id: formatClusterTime(clusterTime), size_bytes: 0, frame: () => Buffer.alloc(0) };
        return members === undefined ? [] : [{ ...entry, ...members } as unknown as ChangeEntry<Members>];
      });
      position = { id: entries.at(-1)?.id ?? position.id, token: batch.resumeToken._data };
      return entries;
    },
    close: changes.close,
  };
}
