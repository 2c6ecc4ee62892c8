import { randomUUID } from 'node:crypto';
import type { Database } from '../db/database.js';
import { findInstance } from '../db/instances.js';
import { buildIndexes, createFromSpec, insertRaw } from '../db/raw-insert.js';
import { acquireReplacement, toLoadingName } from '../db/replacement.js';
import type { ToolConnection } from '../db/tool-connection.js';
import { StartError } from '../errors.js';
import { resealAll } from '../file-storage/linked.js';
import { openVault } from '../vault.js';
import { type BackupReader, type Frame, openBackupFile, parseDocuments } from './file.js';
import { type BackupHeader, type BackupTotals, decodeCollection, parseJsonFrame } from './header.js';
import { openKey } from './sealed-key.js';

export interface RestoreOptions {
  connection: ToolConnection;
  path: string;
  passphrase: string | undefined;
  /** Returns the SECRET_KEY of the restored service; with the one of the backup if it has none. */
  chooseSecretKey: (backedUp: string | undefined) => Promise<string | undefined>;
  /** The folder of the embedded database is locked by this process, so no service uses it. */
  isExclusive: boolean;
  showProgress: (done: number, total: number) => void;
}

export interface RestoreResult {
  totals: BackupTotals;
  created_at: string;
  /** Linked storages that have to be linked again. */
  unreadableStorages: number;
}

/** Batches of documents in flight. */
const max_inserting = 4;

/**
 * Replaces all collections by those of a backup (docs/operations.md#restore). The file is read to its end first; then
 * everything is loaded beside the present collections, which are replaced last, by renaming.
 * @throws StartError, after which nothing has changed
 */
export async function restoreBackup(options: RestoreOptions): Promise<RestoreResult> {
  const { connection, passphrase } = options;
  const { db } = connection;
  const file = await openBackupFile(options.path);
  try {
    const { header, totals } = await verify(file);
    const { created_at, secret_key: sealed } = header;
    if (passphrase !== undefined && sealed === undefined)
      throw new StartError('the backup was made without --passphrase and holds no SECRET_KEY; nothing was changed');
    const backedUpKey =
      passphrase !== undefined && sealed !== undefined ? await openKey(sealed, passphrase) : undefined;
    const assertAlone = async () => {
      const instance = options.isExclusive ? undefined : await findInstance(db);
      if (instance === undefined) return;
      const { host, pid } = instance;
      throw new StartError(
        `a service uses this database: process ${pid} on ${host}. Stop it first (after a crash wait 30 s); nothing was changed`,
      );
    };
    await assertAlone();
    const claim = await acquireReplacement(db, randomUUID());
    if (claim === undefined)
      throw new StartError('another restore of this database is in progress; nothing was changed');
    try {
      await load(options, file, totals);
      const unreadableStorages = await reseal(options, backedUpKey);
      await claim.replace(Object.keys(totals), assertAlone);
      return { totals, created_at, unreadableStorages };
    } finally {
      await claim.release();
    }
  } finally {
    await file.close();
  }
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

/** Loads all collections under other names, with their indexes. @throws Error if documents are missing */
async function load(
  { connection: { db }, showProgress }: RestoreOptions,
  file: BackupReader,
  totals: BackupTotals,
): Promise<void> {
  const specs = new Map<string, Uint8Array>();
  const counts: BackupTotals = {};
  const expected = Object.values(totals).reduce((sum, count) => sum + count, 0);
  const inserting = new Set<Promise<void>>();
  let failure: { error: unknown } | undefined;
  let current = '';
  let done = 0;
  for await (const frame of file.frames()) {
    if (frame.kind === 'collection') {
      const { name, spec } = decodeCollection(frame);
      current = name;
      counts[name] = 0;
      specs.set(name, spec);
      await createFromSpec(db, toLoadingName(name), spec);
    } else if (frame.kind === 'documents') {
      const documents = await parseDocuments(frame);
      const insert = insertRaw(db, toLoadingName(current), documents)
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(() => inserting.delete(insert));
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
    if (counts[name] !== total) throw new StartError(`${name} is not whole; nothing was changed`);
  for (const [name, spec] of specs) await buildIndexes(db, toLoadingName(name), spec);
}

/**
 * Encrypts the settings of the loaded linked storages under the key of the restored service.
 * @returns the number of those that it cannot open
 */
async function reseal(
  { connection: { db }, chooseSecretKey }: RestoreOptions,
  backedUp: string | undefined,
): Promise<number> {
  const target = await chooseSecretKey(backedUp);
  if (target === undefined) return 0;
  const loaded = { collection: (name: string) => db.collection(toLoadingName(name)) } as unknown as Database;
  const vault = openVault(target);
  const { left } = await resealAll(loaded, backedUp === undefined ? vault : openVault(backedUp), vault);
  return left;
}
