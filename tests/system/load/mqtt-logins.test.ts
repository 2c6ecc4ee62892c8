import { randomBytes, scryptSync } from 'node:crypto';
import { afterAll, describe, expect, it } from '@jest/globals';
import { createPasswordVerifier } from '../../../src/mqtt/login/passwords.js';
import { createCredentials } from '../../../src/mqtt/store/credentials.js';
import { encodeConnect, type Raw, startMqtt } from '../../support/mqtt.js';
import { waitUntil } from '../../support/process.js';

let username = '';
let fleet: string[] = [];
let attempts = 0;

/** A hash that takes several times as long as those of the service. */
function slowHash(secret: string): string {
  const [N, r, p] = [16384, 8, 1];
  const salt = randomBytes(16);
  const hash = scryptSync(secret, salt, 32, { N, r, p });
  return ['scrypt', N, r, p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

const mqtt = await startMqtt();
const acme = await mqtt.account('acme');
const first = await acme.device();
username = first.username;
const { id_group } = (await acme.api.get(`/devices/${encodeURIComponent(first.id)}/`)).body;
const hash = slowHash('another password');
fleet = await Promise.all(
  Array.from({ length: 300 }, async (_, n) => {
    const { headers } = await acme.api.post('/devices/', { name: `slow ${n}`, type: 'x', id_group });
    const id = decodeURIComponent(headers.location?.split('/').at(-2) ?? '');
    const ctx = {
      store: mqtt.service.store,
      account: 'acme',
      limit: undefined,
      user: 'alice',
      now: 1000,
      request_id: 'test',
    };
    await createCredentials(ctx, id, { username: id, hash });
    return id;
  }),
);
// later logins cost no hash
await (await mqtt.connect(username)).end();
afterAll(() => mqtt.stop());

/** Sends a CONNECT for each of the fleet, with a wrong password that none has used before. */
async function flood(localAddress?: string): Promise<Raw[]> {
  return Promise.all(
    fleet.map(async (user) => {
      const raw = await mqtt.raw(localAddress);
      raw.socket.write(encodeConnect({ username: user, clientId: 'flood', secret: `wrong ${++attempts}` }));
      return raw;
    }),
  );
}

/** Logs in, and expects that at most a third of the hashes of the flood were derived by then. */
async function expectUndelayedLogin(): Promise<void> {
  const before = process.cpuUsage();
  slowHash('to measure the CPU time of one');
  const hash_us = process.cpuUsage(before).user;
  const begun = process.cpuUsage();
  await (await mqtt.connect(username, { clientId: 'good' })).end();
  expect(process.cpuUsage(begun).user).toBeLessThan((fleet.length / 3) * hash_us);
}

describe('a flood of logins (reference/mqtt.md#login)', () => {
  it.each([
    ['reset', (raw: Raw) => raw.socket.resetAndDestroy()],
    ['closed', (raw: Raw) => raw.socket.end()],
  ])('costs nothing once its connections are %s', async (_how, leave) => {
    const connections = await flood();
    await waitUntil(() => connections.some((raw) => raw.received().length > 0));
    for (const raw of connections) leave(raw);
    await Promise.all(connections.map(({ closed }) => closed));
    await expectUndelayedLogin();
  });

  it('from one address does not hold up another address', async () => {
    const connections = await flood('127.0.0.2');
    await expectUndelayedLogin();
    // most of the flood still waits: the login did not just come after it
    expect(connections.filter((raw) => raw.received().length > 0).length).toBeLessThan(150);
    for (const raw of connections) raw.socket.destroy();
  });

  it('of one username is refused with 3 beyond its share, and does not hold up others', async () => {
    const [victim = ''] = fleet;
    const connections = await Promise.all(
      Array.from({ length: 300 }, async () => {
        const raw = await mqtt.raw();
        raw.socket.write(encodeConnect({ username: victim, clientId: 'flood', secret: `wrong ${++attempts}` }));
        return raw;
      }),
    );
    await expectUndelayedLogin();
    await waitUntil(() => connections.filter((raw) => raw.received()[3] === 3).length >= 100);
    for (const raw of connections) raw.socket.destroy();
  });

  it('keeps what a client sends behind CONNECT while its login waits', async () => {
    const connections = await flood('127.0.0.2');
    const raw = await mqtt.raw();
    raw.socket.write(encodeConnect({ username, clientId: 'eager' }));
    raw.socket.write(Buffer.from([0xc0, 0]));
    raw.socket.write(Buffer.from([0xc0, 0]));
    expect([...(await raw.bytes(8))]).toEqual([0x20, 2, 0, 0, 0xd0, 0, 0xd0, 0]);
    for (const one of [...connections, raw]) one.socket.destroy();
  });
});

describe('the password check', () => {
  /** Processor time of this process and its threads: other programs may have the rest. */
  const time = async (work: () => Promise<unknown>) => {
    const begun = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(begun);
    return (user + system) / 1000;
  };

  it('remembers refused passwords for some seconds, by username, hash and password', async () => {
    let now = 1000;
    const verify = await createPasswordVerifier(() => now);
    const storedHash = slowHash('right');
    const attempt = { username: 'a', password: 'wrong', storedHash };
    const hash_ms = await time(() => verify(attempt));
    const repeated_ms = await time(async () => {
      for (let n = 0; n < 50; n++) expect(await verify(attempt)).toBe(false);
    });
    expect(repeated_ms).toBeLessThan(10 * hash_ms);
    expect(await verify({ ...attempt, password: 'right' })).toBe(true);
    expect(await verify({ ...attempt, storedHash: slowHash('wrong') })).toBe(true);
    expect(await verify({ ...attempt, storedHash: undefined })).toBe(false);
    expect(await verify(attempt)).toBe(false);
    now += 5001;
    expect(await time(() => verify(attempt))).toBeGreaterThan(hash_ms / 10);
  });

  it('derives one hash for identical attempts at once', async () => {
    const verify = await createPasswordVerifier(() => 1000);
    const attempt = { username: 'a', password: 'wrong', storedHash: slowHash('right') };
    const alone_ms = await time(() => verify({ ...attempt, password: 'other' }));
    const together_ms = await time(() => Promise.all(Array.from({ length: 50 }, () => verify(attempt))));
    expect(together_ms).toBeLessThan(10 * alone_ms);
  });
});
