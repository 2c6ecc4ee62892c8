import { expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { describeResourceContract } from '../../support/resource-contract.js';
import { createFixtures } from '../../support/service.js';

const ctx = useTestService();

it('creates and shows a group', async () => {
  const id_service = await ctx.fixtures.service();
  const reply = await ctx.api.post('/groups/', { name: 'Rain', id_service, description: 'of the north', enabled: 0 });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Group created', details: {} }]);
  expect(reply.headers.location).toBe('/groups/Rain%40acme/');
  expect((await ctx.api.get('/groups/Rain@acme/')).body).toEqual({
    id_developer: 'Rain@acme',
    name: 'Rain',
    id_service,
    description: 'of the north',
    enabled: false,
    owner: 'alice',
    updater: 'alice',
    created_at: ctx.service.now(),
    updated_at: ctx.service.now(),
    version: 0,
  });
});

describeResourceContract(ctx, {
  plural: 'groups',
  label: 'Group',
  required: async () => ({ id_service: await ctx.fixtures.service() }),
  parents: { id_service: ['services', (api) => createFixtures(api).service()] },
});
