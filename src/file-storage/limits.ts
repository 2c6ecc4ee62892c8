/** How long and how much a provider may answer. */
export interface StorageLimits {
  signal: AbortSignal;
  /** What is left of the bytes that are read. */
  bytes: number;
}

/** What a fault is about: where the storage is, who asks, or which folder. */
export type FaultKind = 'address' | 'login' | 'folder';

/** A storage that does not do what it should; the message is for clients and holds nothing secret. */
export class StorageFault extends Error {
  override name = 'StorageFault';
  constructor(
    readonly blame: FaultKind,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
