/** The instances of the service that have a broker and use the same database. */
export interface Peers {
  /** The id of this instance. */
  readonly id: string;
  /** No other instance is alive. */
  isAlone(): boolean;
  isLive(instance: string): boolean;
  /** Waits until all others have read what this instance has written so far; not for ever. */
  waitUntilRead(): Promise<void>;
}
