import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from '@jest/globals';
import type { ErrorRequestHandler } from 'express';
import { ahead } from '../../src/http/ahead.js';
import type { Endpoint } from '../../src/http/context.js';
import { openServer } from '../../src/http/server.js';

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

const operation: Endpoint = {
  method: 'get',
  path: '/things/{id}/',
  often: true,
  tag: 'things',
  summary: 'Show a thing',
  scope: 'read',
  result: { kind: 'plain', schema: {} },
  failures: [],
  handle: () => undefined,
};

/** Answers a request that fails at its first step. @returns what a client gets */
async function answered(failure: ErrorRequestHandler, step: () => void | Promise<void>): Promise<string> {
  const { server, express } = openServer();
  const clock = () => 0;
  server.on('request', ahead(express, { base: '', operations: [operation], clock, steps: [step], failure }));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/things/1/`;
  return fetch(url).then(
    (reply) => reply.text(),
    () => 'cut off',
  );
}

const steps = {
  'at once': () => {
    throw new Error('first');
  },
  'later on': async () => {
    await new Promise(setImmediate);
    throw new Error('first');
  },
};

it.each(Object.entries(steps))('tells what fails %s, and what fails in telling it', async (_when, step) => {
  const told: string[] = [];
  const once_more: ErrorRequestHandler = (error: Error, _request, response, _next) => {
    told.push(error.message);
    if (told.length === 1) throw new Error('second');
    response.end(told.join());
  };
  expect(await answered(once_more, step)).toBe('first,second');
});

it.each(Object.entries(steps))('cuts off what fails %s and cannot be told', async (_when, step) => {
  const never: ErrorRequestHandler = (_error, _request, _response, _next) => {
    throw new Error('never');
  };
  expect(await answered(never, step)).toBe('cut off');
});
