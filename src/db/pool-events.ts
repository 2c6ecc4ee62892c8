import type { mongo } from 'mongoose';

/** Connections to the database, over the pools of all its members. */
export interface PoolMetrics {
  connections(inUse: number, idle: number): void;
  /** Operations that wait for a connection. */
  waiting(count: number): void;
  waited(milliseconds: number): void;
  failed(): void;
}

/** Reports the pool events (CMAP) of a client that has not connected yet. */
export function watchPool(client: mongo.MongoClient, metrics: PoolMetrics): void {
  let open = 0;
  let inUse = 0;
  let waiting = 0;
  const reportConnections = () => metrics.connections(inUse, open - inUse);
  const reportWaiting = (change: 1 | -1) => {
    waiting += change;
    metrics.waiting(waiting);
  };
  client.on('connectionCreated', () => {
    open++;
    reportConnections();
  });
  client.on('connectionClosed', () => {
    open--;
    reportConnections();
  });
  client.on('connectionCheckOutStarted', () => reportWaiting(1));
  client.on('connectionCheckOutFailed', () => {
    reportWaiting(-1);
    metrics.failed();
  });
  client.on('connectionCheckedOut', ({ durationMS }) => {
    inUse++;
    reportWaiting(-1);
    reportConnections();
    metrics.waited(durationMS);
  });
  client.on('connectionCheckedIn', () => {
    inUse--;
    reportConnections();
  });
}
