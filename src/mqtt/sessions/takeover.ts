import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../db/database.js';
import { type ConnectionRef, isPreviousEnded } from '../store/sessions.js';
import type { Peers } from './peers.js';

const limit_ms = 5000;
const poll_ms = 50;

/** Waits until another instance has closed the connection that a session had, and stored what is left to acknowledge. */
export async function waitForPrevious(
  db: Database,
  peers: Peers,
  { _id, instance, connection }: ConnectionRef & { _id: string },
): Promise<void> {
  const begun = performance.now();
  while (peers.isLive(instance) && performance.now() - begun < limit_ms) {
    if (await isPreviousEnded(db, _id, connection)) return;
    await sleep(poll_ms);
  }
}
