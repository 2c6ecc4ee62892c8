import { expect, it } from '@jest/globals';
import { drillBackup } from '../../../scripts/drill/backup.js';
import { canMount, drillFullDisk } from '../../../scripts/drill/full-disk.js';

// npm run drill prints them as a table, with what has a test of its own: upgrade, failover, rolling restart, imports
it('restores backups of a running and of a stopped service, and tells no receiver of the original (operations.md#restore)', async () => {
  const { faults, counted } = await drillBackup();
  expect(faults).toEqual([]);
  expect(counted).toMatch(/[1-9]\d* acknowledged streams in two backups; .* 1 mqtt_credentials, 1 keys, 1 webhooks$/);
});

(canMount() ? it : it.skip)(
  'names a full disk, and goes on with all it has acknowledged when there is room',
  async () => {
    expect(await drillFullDisk()).toEqual({ faults: [], counted: expect.stringMatching(/[1-9]\d* requests refused/) });
  },
);
