import type { Database } from '../db/database.js';
import { buildIndexes, createFromSpec, insertRaw } from '../db/raw-insert.js';
import { beginRestore } from '../db/restore-marker.js';
import { processCollections } from '../db/snapshot.js';
import type { ToolConnection } from '../db/tool-connection.js';
import { StartError } from '../errors.js';
import { sealedStorages } from '../file-storage/linked.js';
import { awaitLater } from '../lib/promises.js';
import { openVault } from '../lib/vault.js';
import { data_version, version } from '../lib/version.js';
import { lease_prefix } from '../objects/receipts/deferred-receipts.js';
import { resealAll } from '../objects/write/sealed-values.js';
import { sealedWebhooks } from '../webhooks/secrets.js';
import { type BackupReader, type Frame, openBackupFile, parseDocuments } from './file.js';
import { type BackupHeader, type BackupTotals, decodeCollection, formatTotals, parseJsonFrame } from './header.js';
import { openKey } from './sealed-key.js';

export interface RestoreOptions {
  connection: ToolConnection;
  path: string;
  passphrase: string | undefined;
  /** Returns the SECRET_KEY of the restored service; with the one of the backup if it has none. */
  chooseSecretKey: (backedUp: string | undefined) => Promise<string | undefined>;
  showProgress: (done: number, total: number) => void;
}

export interface RestoreResult {
  totals: BackupTotals;
  created_at: string;
  /** Linked storages and webhooks whose secrets are under another SECRET_KEY: they have to be set again. */
  unreadable: { storages: number; webhooks: number };
  /** Webhooks that send as soon as a service runs. */
  enabled_webhooks: number;
}

/** Batches of documents in flight. */
const max_inserting = 4;

/**
 * Loads a backup into an empty database (docs/operations.md#restore). The file is read to its end first.
 * @throws StartError, after which the database is as before
 */
export async function restoreBackup(options: RestoreOptions): Promise<RestoreResult> {
  const { connection, passphrase } = options;
  const { db } = connection;
  const file = await openBackupFile(options.path);
  try {
    const { header, totals } = await verify(file);
    const { created_at, secret_key: sealed, service, data_version: number = 0 } = header;
    if (number > data_version)
      throw new StartError(
        `the backup is of version ${service}, which this version ${version} cannot use; nothing was changed`,
      );
    if (passphrase !== undefined && sealed === undefined)
      throw new StartError('the backup was made without --passphrase and holds no SECRET_KEY; nothing was changed');
    const backedUpKey =
      passphrase !== undefined && sealed !== undefined ? await openKey(sealed, passphrase) : undefined;
    const { isRepeated, unmark } = await beginRestore(db);
    try {
      if (!isRepeated) await assertEmpty(db);
      await dropCollections(db);
      await load(options, file, totals);
      await leaveReceipts(db, new Date(created_at));
      const unreadable = await reseal(options, backedUpKey);
      const enabled_webhooks = await db.collection('webhooks').countDocuments({ enabled: true });
      await unmark();
      return { totals, created_at, unreadable, enabled_webhooks };
    } catch (error) {
      // if this fails too, the mark stays
      if (!(error instanceof NotEmptyError)) await dropCollections(db);
      await unmark();
      throw error;
    }
  } finally {
    await file.close();
  }
}

type Db = ToolConnection['db'];

class NotEmptyError extends StartError {}

async function listCollections(db: Db): Promise<string[]> {
  const collections = await db.listCollections({ type: 'collection' }, { nameOnly: true }).toArray();
  return collections
    .map(({ name }) => name)
    .filter((name) => !processCollections.has(name) && !name.startsWith('system.'));
}

async function assertEmpty(db: Db): Promise<void> {
  const counts: Record<string, number> = {};
  for (const name of (await listCollections(db)).sort())
    counts[name] = await db.collection(name).estimatedDocumentCount();
  const { migrations: _, ...content } = counts;
  if (Object.values(content).every((count) => count === 0)) return;
  throw new NotEmptyError(
    `the database is not empty (${formatTotals(content)}); a restore takes an empty DATA_DIR, or a new database name in MONGODB_URI`,
  );
}

/** Drops the views as well by which earlier versions are locked out: their backups have collections of these names. */
async function dropCollections(db: Db): Promise<void> {
  const views = await db.listCollections({ type: 'view' }, { nameOnly: true }).toArray();
  for (const name of [...views.map((view) => view.name), ...(await listCollections(db))]) await db.dropCollection(name);
}

/** Has the service read receipts from the streams that were in memory at the time of the backup. */
async function leaveReceipts(db: Db, until: Date): Promise<void> {
  const lease = { _id: `${lease_prefix}of-backup`, holder: 'backup', until };
  await db.collection<typeof lease>('leases').replaceOne({ _id: lease._id }, lease, { upsert: true });
}

/** Reads the file to its end. @throws StartError if it is not whole */
async function verify(file: BackupReader): Promise<{ header: BackupHeader; totals: BackupTotals }> {
  let [first, last]: (Frame | undefined)[] = [];
  for await (const frame of file.frames()) {
    first ??= frame;
    last = frame;
  }
  return {
    header: parseJsonFrame<BackupHeader>(first, 'header'),
    totals: parseJsonFrame<BackupTotals>(last, 'totals'),
  };
}

/** Loads all collections with their indexes. @throws Error if documents are missing */
async function load(
  { connection: { db }, showProgress }: RestoreOptions,
  file: BackupReader,
  totals: BackupTotals,
): Promise<void> {
  const specs = new Map<string, Uint8Array>();
  const counts: BackupTotals = {};
  const expected = Object.values(totals).reduce((sum, count) => sum + count, 0);
  const inserting = new Set<Promise<unknown>>();
  let failure: { error: unknown } | undefined;
  let current = '';
  let done = 0;
  for await (const frame of file.frames()) {
    if (frame.kind === 'collection') {
      const { name, spec } = decodeCollection(frame);
      current = name;
      counts[name] = 0;
      specs.set(name, spec);
      await createFromSpec(db, name, spec);
    } else if (frame.kind === 'documents') {
      const documents = await parseDocuments(frame);
      const insert: Promise<unknown> = awaitLater(
        insertRaw(db, current, documents)
          .catch((error: unknown) => {
            failure ??= { error };
          })
          .finally(() => inserting.delete(insert)),
      );
      inserting.add(insert);
      counts[current] = (counts[current] ?? 0) + documents.length;
      done += documents.length;
      if (inserting.size >= max_inserting) await Promise.race(inserting);
      if (failure !== undefined) break;
      showProgress(done, expected);
    }
  }
  await Promise.all(inserting);
  if (failure !== undefined) throw failure.error;
  for (const [name, total] of Object.entries(totals))
    if (counts[name] !== total) throw new StartError(`${name} is not whole`);
  for (const [name, spec] of specs) await buildIndexes(db, name, spec);
}

/** Encrypts what was loaded under the key of the restored service. @returns the numbers of secrets that it cannot open */
async function reseal(
  { connection: { db }, chooseSecretKey }: RestoreOptions,
  backedUp: string | undefined,
): Promise<RestoreResult['unreadable']> {
  const target = await chooseSecretKey(backedUp);
  if (target === undefined) return { storages: 0, webhooks: 0 };
  const loaded = { collection: (name: string) => db.collection(name) } as unknown as Database;
  const to = openVault(target);
  const from = backedUp === undefined ? to : openVault(backedUp);
  const storages = await resealAll(loaded, sealedStorages, from, to);
  const webhooks = await resealAll(loaded, sealedWebhooks, from, to);
  return { storages: storages.left, webhooks: webhooks.left };
}
