import { StartError } from '../errors.js';
import type { Frame } from './file.js';
import type { SealedKey } from './sealed-key.js';

/** First frame of a backup. */
export interface BackupHeader {
  /** ISO 8601. */
  created_at: string;
  /** Version of the service. */
  service: string;
  /** Data version of the tool, which the data does not exceed; absent before version 0.3.0. */
  data_version?: number;
  /** Documents by collection, nearly; the totals at the end are exact. */
  documents: Record<string, number>;
  /** SECRET_KEY, if a passphrase was given. */
  secret_key?: SealedKey;
}

/** Documents by collection. */
export type BackupTotals = Record<string, number>;

/** Parses the JSON of a header or of totals. @throws StartError if the frame is of another kind */
export function parseJsonFrame<T>(frame: Frame | undefined, kind: Frame['kind']): T {
  if (frame?.kind !== kind) throw new StartError(`the backup lacks its ${kind}; nothing was changed`);
  return JSON.parse(frame.content.toString()) as T;
}

/** Decodes the frame of a collection. */
export function decodeCollection({ content }: Frame): { name: string; spec: Buffer } {
  const end = content.indexOf(0);
  return { name: content.toString('utf8', 0, end), spec: content.subarray(end + 1) };
}

/** Formats the number of documents of each collection that has any. */
export function formatTotals(totals: Readonly<Record<string, number>>): string {
  const present = Object.entries(totals).filter(([, count]) => count > 0);
  return present.map(([name, count]) => `${count} ${name}`).join(', ') || 'no documents';
}
