import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type Api, at, givenBy, startTestService, type TestService } from '../support/service.js';

let service: TestService;
let api: Api;

beforeAll(async () => {
  service = await startTestService();
  api = await service.client();
});
afterAll(() => service.stop());

it('creates and shows a project', async () => {
  const reply = await api.post('/projects/', { name: ' Weather ', id_customer: 'c-1' });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Project created', details: {} }]);
  expect(reply.headers.location).toBe('/projects/Weather%40acme/');
  const shown = await api.get('/projects/Weather@acme/');
  expect(shown.body).toEqual({
    id_developer: 'Weather@acme',
    name: 'Weather',
    id_customer: 'c-1',
    enabled: true,
    owner: 'alice',
    updater: 'alice',
    created_at: service.now(),
    updated_at: service.now(),
    version: 0,
  });
});

it('deletes everything beneath', async () => {
  const given = givenBy(api);
  const id_project = await given.project();
  const id_service = await given.service({ id_project });
  const device = await given.device({ id_group: await given.group({ id_service }) });
  expect((await api.delete(at('projects', id_project))).body).toEqual({
    code: 2004,
    message: 'Project deleted',
    details: {},
  });
  expect((await api.get(at('devices', device))).status).toBe(404);
});
