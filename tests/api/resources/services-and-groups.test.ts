import { describe, expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { describeResourceContract } from '../../support/resource-contract.js';
import { createFixtures } from '../../support/service.js';

const ctx = await useTestService();

describe.each([
  ['services', 'Service', 'id_project', 'project'],
  ['groups', 'Group', 'id_service', 'service'],
] as const)('%s', (plural, label, parent, fixture) => {
  it('are created and shown', async () => {
    const body = { name: 'Rain', [parent]: await ctx.fixtures[fixture](), description: 'of the north', enabled: 0 };
    const reply = await ctx.api.post(`/${plural}/`, body);
    expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: `${label} created`, details: {} }]);
    expect(reply.headers.location).toBe(`/${plural}/Rain%40acme/`);
    expect((await ctx.api.get(`/${plural}/Rain@acme/`)).body).toEqual({
      ...body,
      id_developer: 'Rain@acme',
      enabled: false,
      owner: 'alice',
      updater: 'alice',
      created_at: ctx.service.now(),
      updated_at: ctx.service.now(),
      version: 0,
    });
  });

  describeResourceContract(ctx, {
    plural,
    label,
    required: async () => ({ [parent]: await ctx.fixtures[fixture]() }),
    parents: { [parent]: [`${fixture}s`, (api) => createFixtures(api)[fixture]()] },
  });
});
