import { expect, it } from '@jest/globals';
import { hasCommit, last_release } from '../../../scripts/drill/earlier-version.js';
import { drillUpgrade } from '../../../scripts/drill/upgrade.js';

// a clone without history has no earlier version
const itWithHistory = hasCommit(last_release) ? it : it.skip;
const limit_ms = 900_000;

itWithHistory(
  'loses nothing that two instances of 0.2.0 acknowledge beside the upgrade, killed twice',
  async () => {
    const { faults, counted } = await drillUpgrade();
    expect(faults).toEqual([]);
    expect(counted).toMatch(/[1-9]\d* acknowledged before/);
  },
  limit_ms,
);
