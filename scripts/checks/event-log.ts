import { findFaults, type SentRequest } from './event-log-model.js';
import { type RaceOptions, withRaces } from './races.js';
import { readObjects, readWholeLog, sendRequests } from './random-requests.js';

/** Counts of requests and events. */
export interface Outcome {
  acknowledged: number;
  unknown: number;
  events: number;
  kills: number;
  /** Differences between the log, the acknowledged requests and the stored objects. */
  faults: readonly string[];
}

const clients = 8;

/**
 * Sends random creates, updates, moves and deletions to two instances, kills instances and database at random moments, and
 * compares the event log with the answers and with what is stored at the end.
 */
export function runEventLogRaces({ print, ...setup }: RaceOptions): Promise<Outcome> {
  return withRaces(setup, async ({ instances, key, random, db, kill, recover }) => {
    const requests: SentRequest[] = [];
    const load = new AbortController();
    const running = Array.from({ length: clients }, (_, number) =>
      sendRequests({ instances, key, random, requests, number, signal: load.signal }),
    );
    const kills = await kill();
    load.abort();
    await Promise.all(running);
    await recover();
    const events = await readWholeLog(db);
    const faults = findFaults(requests, events, await readObjects(db));
    const acknowledged = requests.filter(({ code }) => code < 3000).length;
    const unknown = requests.filter(({ code }) => code >= 5000).length;
    const counts = `${acknowledged} acknowledged, ${unknown} unknown, ${events.length} events, ${kills} kills`;
    print(`seed ${setup.seed}: ${counts}, ${faults.length} faults`);
    return { acknowledged, unknown, events: events.length, kills, faults };
  });
}
