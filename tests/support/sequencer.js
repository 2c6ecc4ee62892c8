import Sequencer from '@jest/test-sequencer';

/** Files that take 30 s or more, the slowest first, so that no worker begins one when the others have nothing left to do. */
const slowFiles = [
  'tools/clients',
  'faults/rolling-restart',
  'faults/costly-operations',
  'faults/bulk',
  'faults/failover',
  'examples',
  'mqtt/instances',
  'faults/webhooks',
  'events/live-events',
  'faults/embedded',
  'faults/backup',
  'faults/event-log',
  'console/features',
  'api/alarms/evaluation',
  'console/views',
  'api/webhooks/delivery',
  'mqtt/bridge',
  'faults/upgrade',
  'faults/restore',
  'faults/removals',
  'faults/moves',
  'api/resources/linked-storage-hostile',
  'console/conduct',
  'races/removals',
].map((name) => `/tests/${name}.test.ts`);

/** Runs the slow files first; jest knows durations only where it has run before. */
export default class SlowestFirst extends Sequencer {
  sort(tests) {
    const rankOf = ({ path }) => {
      const rank = slowFiles.findIndex((name) => path.endsWith(name));
      return rank < 0 ? slowFiles.length : rank;
    };
    return super.sort(tests).toSorted((left, right) => rankOf(left) - rankOf(right));
  }
}
