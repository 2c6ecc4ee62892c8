import { afterAll, expect } from '@jest/globals';
import { type Api, createFixtures, type Reply, startTestService, type TestService } from './service.js';

/** HTTP status and message of each code, written by hand from reference/errors.md#codes. */
const statusByCode: Readonly<Record<number, readonly [number, RegExp]>> = {
  2001: [
    200,
    /^(Project|Service|Group|Asset|Device|apikey|Webhook( secret)?|Alarm rule|Filter|command) created$|^model persisted$/,
  ],
  2004: [
    200,
    /^(Project|Service|Group|Asset|Device|model|apikey|Webhook|Alarm rule|Filter) deleted$|^command cancelled$|^connection ended$/,
  ],
  2005: [200, /^(Project|Service|Group|Asset|Device|model|Webhook|Alarm rule|Alarm|Filter|state|command) updated$/],
  4001: [400, /^(Json bad formed|nonexistent file)$/],
  4003: [400, /^validation error$/],
  4004: [400, /^format parameter invalid$/],
  4005: [400, /^concurrency error$/],
  4011: [401, /^unauthorized$/],
  4031: [403, /^forbidden$/],
  4041: [404, /^not found$/],
  4051: [405, /./],
  4131: [413, /./],
  4291: [429, /./],
  5031: [503, /^BD error$/],
  5032: [503, /^exception$/],
};

/**
 * Shortens a status body: `4003 name type` is code 4003 with messages for the fields name and type, `2005` an
 * update. Asserts that the HTTP status, the message and the details fit the code.
 */
export function summarize({ status, body }: Reply): string {
  const { code, message, details } = body;
  expect(body).toEqual({ code, message, details });
  const [expected = 0, pattern = /^$/] = statusByCode[code] ?? [];
  // only a Device_config is created with 201 (reference/errors.md#statuses)
  if (message !== 'Device_config created')
    expect({ status, message }).toEqual({ status: expected, message: expect.stringMatching(pattern) });
  else expect(status).toBe(201);
  if (code < 4000) return `${code}`;
  for (const reason of Object.values(details)) expect(String(reason)).not.toBe('');
  return [code, ...Object.keys(details).sort()].join(' ');
}

/** Starts an action `count` times at once. */
export function repeat<T>(count: number, act: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => act(index)));
}

/** The codes of replies, sorted. */
export const codesOf = (replies: readonly Reply[]): number[] => replies.map(({ body }) => body.code).sort();

/** The service of one test file, a client with an admin key, and fixtures created by that client. */
export interface TestContext {
  service: TestService;
  api: Api;
  fixtures: ReturnType<typeof createFixtures>;
}

/** Starts a service for the tests of a file, which is stopped after them. */
export async function useTestService(options?: Parameters<typeof startTestService>[0]): Promise<TestContext> {
  const service = await startTestService(options);
  afterAll(() => service.stop());
  const api = await service.client();
  return { service, api, fixtures: createFixtures(api) };
}
