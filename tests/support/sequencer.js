import Sequencer from '@jest/test-sequencer';

/**
 * Files that take 30 s or more, the slowest first, so that no worker begins one when the others have nothing left to do; and
 * short ones that take long, which jest would begin last.
 */
const slowFiles = [
  'system/tools/clients',
  'system/faults/rolling-restart',
  'system/faults/costly-operations',
  'system/faults/bulk',
  'system/faults/failover',
  'system/examples',
  'system/instances/mqtt',
  'system/faults/webhooks',
  'system/instances/live-events',
  'system/races/live-feeds',
  'system/faults/embedded',
  'system/faults/backup',
  'system/faults/event-log',
  'system/console/features',
  'system/models/alarm-evaluation',
  'system/console/views',
  'system/faults/webhook-delivery',
  'system/brokers/bridge',
  'system/faults/upgrade',
  'system/faults/restore',
  'system/faults/removals',
  'system/faults/moves',
  'system/storage/hostile',
  'system/console/conduct',
  'system/races/removals',
  'system/races/devices',
  'system/faults/database',
  'system/faults/upgrade-beside',
  'system/tools/drill',
  'system/tools/accounts',
  'system/instances/proxies',
  'api/cross-cutting/isolation',
  'api/cross-cutting/security',
  'api/cross-cutting/access',
  'console/serving',
  'api/resources/streams',
  'mqtt/delivery',
  'mqtt/guard',
  'unit/promises',
  'api/resources/hierarchy',
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
