import type { Readable } from 'node:stream';
import type { Network } from '../../egress/network.js';
import type { Fields } from '../../schema/fields.js';
import type { FaultKind, StorageLimits } from '../limits.js';

/** A file in the linked folder or below. */
export interface StoredFile {
  /** Relative to the linked folder, such as `2026/march/a.csv`; never with `.` or `..` segments. */
  path: string;
  /** Bytes. */
  size: number;
  /** Epoch seconds. */
  modified_at: number;
}

/** A download request of a client. */
export interface FileRequest {
  method: 'GET' | 'HEAD';
  /** `range` and `if-range`, if the client sent them. */
  headers: Readonly<Record<string, string>>;
}

/** The response to a download: the bytes of the file, or the address to redirect to. */
export type FileResponse =
  | { status: number; headers: Readonly<Record<string, string | number>>; body: Readable | undefined }
  | { location: string };

/** A linked folder. Every function fails with a StorageFault. */
export interface FileStorage {
  /** Tries the settings with the cheapest request that proves them. */
  check(limits: StorageLimits): Promise<void>;
  /** All files, page by page as the provider returns them, unsorted. */
  files(limits: StorageLimits): AsyncIterable<readonly StoredFile[]>;
  /** Links at the provider that open without further credentials, in the order of `files`; undefined where it returned none. */
  links?(files: readonly StoredFile[], limits: StorageLimits): Promise<readonly (string | undefined)[]>;
  /** Lists longer than this get links through the service, as do storages without `links`. */
  max_links?: number;
  /** Opens a file for a link through the service. The signal ends the wait for the response headers. */
  open?(path: string, request: FileRequest, signal: AbortSignal): Promise<FileResponse>;
}

/** The settings of a link by field; optional ones may be missing. */
export type Settings = Readonly<Record<string, string | undefined>>;

/** Everything outside the process that providers may reach. */
export interface Egress {
  network: Network;
  /** FILESTORE_LOCAL_ROOT */
  local_root: string | undefined;
}

export type OpenStorage = (settings: Settings, egress: Egress, account: string) => FileStorage;

/** A kind of storage (reference/file-storage.md#providers). To add one, write its file and list it in `providers.ts`. */
export interface Provider {
  name: string;
  fields: Fields;
  /** The setting that an error response names for each kind of fault. */
  faultField: Readonly<Record<FaultKind, string>>;
  open: OpenStorage;
}

/** Lifetime of the links in a listing. */
export const link_ttl_s = 3600;

/** Tests that a relative path cannot leave the folder it starts from. */
export function isSafeRelativePath(path: string): boolean {
  return !path.includes('\0') && !path.split('/').some((segment) => segment === '..' || segment === '.');
}

/** Parses a date in a provider's notation into epoch seconds; 0 if it is no date. */
export function parseEpochSeconds(date = ''): number {
  return Math.floor(Date.parse(date) / 1000) || 0;
}

/** Percent-encodes the segments of a path. */
export function encodePath(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/');
}
