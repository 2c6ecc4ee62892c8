import { expect, it } from '@jest/globals';
import { ownService } from '../../support/expect-status.js';
import { describeResourceContract } from '../../support/resource-contract.js';
import { givenBy } from '../../support/service.js';

const own = ownService();

it('creates and shows a group', async () => {
  const id_service = await own.given.service();
  const reply = await own.api.post('/groups/', { name: 'Rain', id_service, description: 'of the north', enabled: 0 });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Group created', details: {} }]);
  expect(reply.headers.location).toBe('/groups/Rain%40acme/');
  expect((await own.api.get('/groups/Rain@acme/')).body).toEqual({
    id_developer: 'Rain@acme',
    name: 'Rain',
    id_service,
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
  plural: 'groups',
  label: 'Group',
  required: async () => ({ id_service: await own.given.service() }),
  parents: { id_service: ['services', (api) => givenBy(api).service()] },
});
