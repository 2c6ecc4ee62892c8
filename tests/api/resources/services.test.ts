import { expect, it } from '@jest/globals';
import { ownService } from '../../support/expect-status.js';
import { describeResourceContract } from '../../support/resource-contract.js';
import { givenBy } from '../../support/service.js';

const own = ownService();

it('creates and shows a service', async () => {
  const id_project = await own.given.project();
  const reply = await own.api.post('/services/', { name: 'Rain', id_project, description: 'of the north', enabled: 0 });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Service created', details: {} }]);
  expect(reply.headers.location).toBe('/services/Rain%40acme/');
  expect((await own.api.get('/services/Rain@acme/')).body).toEqual({
    id_developer: 'Rain@acme',
    name: 'Rain',
    id_project,
    description: 'of the north',
    enabled: false,
    owner: 'alice',
    updater: 'alice',
    created_at: own.service.now(),
    updated_at: own.service.now(),
    version: 0,
  });
});

describeResourceContract(own, {
  plural: 'services',
  label: 'Service',
  required: async () => ({ id_project: await own.given.project() }),
  parents: { id_project: ['projects', (api) => givenBy(api).project()] },
});
