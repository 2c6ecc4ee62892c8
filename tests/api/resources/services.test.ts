import { expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { describeResourceContract } from '../../support/resource-contract.js';
import { createFixtures } from '../../support/service.js';

const ctx = useTestService();

it('creates and shows a service', async () => {
  const id_project = await ctx.fixtures.project();
  const reply = await ctx.api.post('/services/', { name: 'Rain', id_project, description: 'of the north', enabled: 0 });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Service created', details: {} }]);
  expect(reply.headers.location).toBe('/services/Rain%40acme/');
  expect((await ctx.api.get('/services/Rain@acme/')).body).toEqual({
    id_developer: 'Rain@acme',
    name: 'Rain',
    id_project,
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
  plural: 'services',
  label: 'Service',
  required: async () => ({ id_project: await ctx.fixtures.project() }),
  parents: { id_project: ['projects', (api) => createFixtures(api).project()] },
});
