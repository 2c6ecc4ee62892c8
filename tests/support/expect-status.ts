import { afterAll, beforeAll, expect } from '@jest/globals';
import { type Api, givenBy, type Reply, startTestService, type TestService } from './service.js';

/** The status and the message of every code, by hand from specification 7.2 and contract 4. */
const outcomes: Readonly<Record<number, readonly [number, RegExp]>> = {
  2001: [200, /^(Project|Service|Group|Asset|Device|apikey) created$|^model persisted$/],
  2004: [200, /^(Project|Service|Group|Asset|Device|model|apikey) deleted$/],
  2005: [200, /^(Project|Service|Group|Asset|Device|model) updated$/],
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
 * What a status body says in short: `4003 name type` is code 4003 with a message for the fields name and type, `2005`
 * an update. Checks on the way that status, message and details belong to the code.
 */
export function summarize({ status, body }: Reply): string {
  const { code, message, details } = body;
  expect(body).toEqual({ code, message, details });
  const [expected = 0, pattern = /^$/] = outcomes[code] ?? [];
  // Device_config is the only one that is created with 201 (§7.1)
  if (message !== 'Device_config created')
    expect({ status, message }).toEqual({ status: expected, message: expect.stringMatching(pattern) });
  else expect(status).toBe(201);
  if (code < 4000) return `${code}`;
  for (const said of Object.values(details)) expect(String(said)).not.toBe('');
  return [code, ...Object.keys(details).sort()].join(' ');
}

/** A service of the test file's own, with a key of scope admin. */
export interface Own {
  service: TestService;
  api: Api;
  given: ReturnType<typeof givenBy>;
}

/** Starts a service before the tests of a file and stops it after; what it returns is filled by then. */
export function ownService(options?: Parameters<typeof startTestService>[0]): Own {
  const own = {} as Own;
  beforeAll(async () => {
    own.service = await startTestService(options);
    own.api = await own.service.client();
    own.given = givenBy(own.api);
  });
  afterAll(() => own.service?.stop());
  return own;
}
