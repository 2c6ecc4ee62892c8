import type { mongo } from 'mongoose';

/** Connections to the database, over the pools of all its members. */
export interface PoolState {
  open: number;
  in_use: number;
  /** Operations that wait for a connection. */
  waiting: number;
}

export interface PoolMetrics {
  /** Changes with every operation. */
  state: PoolState;
  waited(milliseconds: number): void;
  failed(): void;
}

/** Follows the pool events (CMAP) of a client that has not connected yet. */
export function watchPool(client: mongo.MongoClient, { state, waited, failed }: PoolMetrics): void {
  client.on('connectionCreated', () => state.open++);
  client.on('connectionClosed', () => state.open--);
  client.on('connectionCheckOutStarted', () => state.waiting++);
  client.on('connectionCheckOutFailed', () => {
    state.waiting--;
    failed();
  });
  client.on('connectionCheckedOut', ({ durationMS }) => {
    state.waiting--;
    state.in_use++;
    waited(durationMS);
  });
  client.on('connectionCheckedIn', () => state.in_use--);
}
