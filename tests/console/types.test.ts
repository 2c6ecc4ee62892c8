import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { formatConsoleTypes } from '../../scripts/console-types.js';
import { useTestService } from '../support/expect-status.js';

const ctx = useTestService();

it('has the types of /openapi.json; else run dist/scripts/console-types.js', async () => {
  const { body } = await ctx.service.clientWith(undefined).get('/openapi.json');
  expect(readFileSync('src/console/api/interface.ts', 'utf8')).toBe(formatConsoleTypes(body.components.schemas));
});

it('reads only paths that /openapi.json lists, or asks whether it does', async () => {
  const { body } = await ctx.service.clientWith(undefined).get('/openapi.json');
  for (const path of [
    '/projects/',
    '/services/',
    '/groups/',
    '/assets/',
    '/devices/',
    '/models/',
    '/apikeys/',
    '/types/',
  ])
    expect(body.paths[path].get).toBeDefined();
  expect(body.paths['/projects/'].post['x-required-scope']).toBe('write');
  expect(body.paths['/apikeys/'].get['x-required-scope']).toBe('admin');
});
