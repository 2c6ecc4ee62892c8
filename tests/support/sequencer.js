import Sequencer from '@jest/test-sequencer';

/** Files that take 30 s or more, so that no worker begins one when the others have nothing left to do. */
const slowFiles = [
  'faults/rolling-restart',
  'faults/failover',
  'tools/clients',
  'faults/bulk',
  'faults/restore',
  'faults/embedded',
  'mqtt/recheck',
  'faults/event-log',
  'faults/webhooks',
  'faults/removals',
  'api/webhooks/delivery',
  'mqtt/instances',
  'faults/backup',
  'faults/moves',
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
