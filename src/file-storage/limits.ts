/** Bounds on one conversation with a provider. */
export interface StorageLimits {
  signal: AbortSignal;
  /** Bytes of responses that may still be read. */
  bytes: number;
}

/** The part of the settings to blame: the server, the credentials or the folder. */
export type FaultKind = 'address' | 'login' | 'folder';

/** A failure of a storage; the message goes to clients and holds no secret. */
export class StorageFault extends Error {
  override name = 'StorageFault';
  constructor(
    readonly kind: FaultKind,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The failure of a storage without the folder or file. */
export class MissingFault extends StorageFault {
  constructor(options?: ErrorOptions) {
    super('folder', 'does not exist', options);
  }
}

/** The longest path of a file in a listing. */
export const max_path_length = 4000;

/** The longest list of files. */
export const max_files = 100_000;

/** The failure of a storage with more files than a list may have. */
export function createTooManyFilesFault(): StorageFault {
  return new StorageFault('folder', `holds more than ${max_files} files`);
}

/** The failure of a server that breaks the protocol of its provider. */
export function createProtocolFault(cause?: unknown): StorageFault {
  return new StorageFault('address', 'does not answer as such a storage does', { cause });
}
