import { describe } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { describeResourceContract } from '../../support/resource-contract.js';
import { createFixtures } from '../../support/service.js';

const ctx = await useTestService();

describe.each([
  ['services', 'Service', 'id_project', 'project'],
  ['groups', 'Group', 'id_service', 'service'],
] as const)('%s', (plural, label, parent, fixture) => {
  describeResourceContract(ctx, {
    plural,
    label,
    required: async () => ({ [parent]: await ctx.fixtures[fixture]() }),
    parents: { [parent]: [`${fixture}s`, (api) => createFixtures(api)[fixture]()] },
  });
});
