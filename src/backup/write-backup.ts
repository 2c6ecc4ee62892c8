import { openSnapshot } from '../db/snapshot.js';
import type { ToolConnection } from '../db/tool-connection.js';
import { data_version, version } from '../lib/version.js';
import { createBackupFile } from './file.js';
import type { BackupHeader, BackupTotals } from './header.js';
import { sealKey } from './sealed-key.js';

export interface BackupOptions {
  connection: ToolConnection;
  path: string;
  /** Encrypts `secret_key`; without it the key is left out. */
  passphrase: string | undefined;
  secret_key: string | undefined;
  showProgress: (done: number, total: number) => void;
}

/**
 * Writes everything that was acknowledged before this call, as of one moment, to a file. Memory is constant.
 * @returns documents by collection, and the bytes of the file
 */
export async function writeBackup(options: BackupOptions): Promise<{ totals: BackupTotals; bytes: number }> {
  const { connection, path, passphrase, secret_key, showProgress } = options;
  const file = await createBackupFile(path);
  try {
    const snapshot = await openSnapshot(connection);
    try {
      const expected = snapshot.collections.reduce((sum, { documents }) => sum + documents, 0);
      const header: BackupHeader = {
        created_at: new Date().toISOString(),
        service: version,
        data_version,
        documents: Object.fromEntries(snapshot.collections.map(({ name, documents }) => [name, documents])),
        ...(passphrase !== undefined &&
          secret_key !== undefined && { secret_key: await sealKey(secret_key, passphrase) }),
      };
      await file.frame('header', Buffer.from(JSON.stringify(header)));
      const totals: BackupTotals = {};
      let done = 0;
      for (const { name, spec } of snapshot.collections) {
        await file.frame('collection', Buffer.concat([Buffer.from(`${name}\0`), spec]));
        let count = 0;
        for await (const documents of snapshot.read(name)) {
          await file.documents(documents);
          count += documents.length;
          done += documents.length;
          showProgress(done, Math.max(done, expected));
        }
        totals[name] = count;
      }
      await file.frame('totals', Buffer.from(JSON.stringify(totals)));
      return { totals, bytes: await file.finish() };
    } finally {
      await snapshot.close();
    }
  } catch (error) {
    await file.abort();
    throw error;
  }
}
