import type { Readable } from 'node:stream';
import type { Fields } from '../schema/fields.js';
import type { Network } from './egress.js';
import type { FaultKind, StorageLimits } from './limits.js';

/** A file somewhere below the linked folder. */
export interface StoredFile {
  /** From the linked folder on, such as `2026/march/a.csv`; never with empty, `.` or `..` segments at its beginning. */
  path: string;
  /** Bytes. */
  size: number;
  /** Epoch seconds. */
  modified_at: number;
}

/** What a client asks for of a file. */
export interface FileRequest {
  method: 'GET' | 'HEAD';
  /** `range` and `if-range`, where given. */
  headers: Readonly<Record<string, string>>;
}

/** A file that goes out through the service: its bytes, or the address where they are. */
export type FileResponse =
  | { status: number; headers: Readonly<Record<string, string | number>>; body: Readable | undefined }
  | { location: string };

/** A linked folder. Every function fails with a StorageFault. */
export interface Storage {
  /** Whether the settings work, by the cheapest request that shows it. */
  check(bounds: StorageLimits): Promise<void>;
  /** All files, page by page as the provider has them, in no order. */
  files(bounds: StorageLimits): AsyncIterable<readonly StoredFile[]>;
  /** Addresses at the provider that open without further credentials, in the order of `files`; undefined where it gave none. */
  links?(files: readonly StoredFile[], bounds: StorageLimits): Promise<readonly (string | undefined)[]>;
  /** The longest list whose links are asked for at once; beyond, and without `links`, they lead through the service. */
  max_links?: number;
  /** Opens a file for a link that leads through the service. The signal ends the wait for its beginning. */
  open?(path: string, wanted: FileRequest, signal: AbortSignal): Promise<FileResponse>;
}

/** The text values of a link, by field; those that are optional may be missing. */
export type Settings = Readonly<Record<string, string | undefined>>;

/** What providers may use of the world. */
export interface Egress {
  network: Network;
  /** FILESTORE_LOCAL_ROOT */
  local_root: string | undefined;
}

export type OpenStorage = (settings: Settings, reach: Egress) => Storage;

/** A kind of storage (contract 10). To add one, write its file and list it in `providers.ts`. */
export interface Provider {
  name: string;
  fields: Fields;
  /** The field to tell the client about. */
  faultField: Readonly<Record<FaultKind, string>>;
  open: OpenStorage;
}

/** Links open for this long. */
export const links_last_s = 3600;

/** Whether a path stays below the folder it starts from. */
export function staysBelow(path: string): boolean {
  return !path.includes('\0') && !path.split('/').some((segment) => segment === '..' || segment === '.');
}

/** A date as providers write it, in epoch seconds; 0 for what is none. */
export function epochSeconds(date = ''): number {
  return Math.floor(Date.parse(date) / 1000) || 0;
}

/** A path with its segments percent-encoded. */
export function encodedPath(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/');
}
