import { afterAll, describe, expect, it } from '@jest/globals';
import { parseSmtpServer } from '../../../src/lib/server-addresses.js';
import { createAlarmTools } from '../../support/alarms.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { startMailServer } from '../../support/mail-server.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

/** Replies of the server by address, which tests change. */
const replies = new Map<string, number>();
const common = {
  ...({ eventLog: true, deliver: true } as const),
  webhook_allow_nets: ['127.0.0.0/8'],
  smtp_from: { name: 'Alarms „north“', address: 'alarms@example.com' },
};
const mail = await startMailServer({
  login: { user: 'us@er', pass: 'p:ss' },
  answer: (address) => replies.get(address),
});
const smtp_url = parseSmtpServer(`smtp://us%40er:p%3Ass@127.0.0.1:${mail.port}`);
const ctx = await useTestService({ ...common, smtp_url });
const tools = createAlarmTools(ctx);
afterAll(() => mail.close());
let number = 0;

/** Creates a webhook with addresses of its own: `ab` gives it two. */
async function createHook(letters: string, fields: object = {}) {
  number++;
  const addresses = letters.split('').map((letter) => `${letter}${number}@example.com`);
  const body = { name: `mail ${number}`, url: `mailto:${addresses}`, types: ['project.'], digest_s: 0, ...fields };
  const created = await ctx.api.post('/webhooks/', body);
  expect([summarize(created), created.body.details]).toEqual(['2001', {}]);
  const path = created.headers.location ?? '';
  return { addresses, path, deliveries: async () => (await ctx.api.get(`${path}deliveries/`)).body.result };
}

const mailsTo = (addresses: readonly string[]) =>
  mail.mails.filter(({ to }) => to.some((address) => addresses.includes(address)));
const createProject = () => ctx.fixtures.project({ name: `works ${++number}` });

it('is a mail to each address, encrypted, with nothing but its own headers', async () => {
  const { addresses, path, deliveries } = await createHook('ab', { types: ['alarm.acknowledged'] });
  expect((await ctx.api.get(path)).body).toMatchObject({ format: 'text', digest_s: 0 });
  const device = await ctx.fixtures.device({ name: 'Pümpe =?utf-8?q?=0ABcc:_x@example.com?=' });
  await tools.rule({ conditions: [{ path: 'bar', op: '=', value: 'on\r\nBcc: y@example.com' }], id_device: device });
  await tools.send(device, { data: { bar: 'on\r\nBcc: y@example.com' }, at: 1_767_225_600 });
  const [alarm] = await tools.alarmsOf(device);
  const note = 'seen\r\n.\r\nRCPT TO:<z@example.com>\u202e';
  await ctx.api.put(pathOf('alarms', String(alarm?.id)), { state: 'acknowledged', note });
  await waitUntil(() => mailsTo(addresses).length === 2);
  expect(mail.mails.flatMap(({ to }) => to)).toEqual(addresses);
  for (const [index, { from, user, isEncrypted, headers, body }] of mailsTo(addresses).entries()) {
    expect({ from, user, isEncrypted }).toEqual({ from: 'alarms@example.com', user: 'us@er', isEncrypted: true });
    expect(Object.keys(headers).sort()).toEqual([
      ...['auto-submitted', 'content-transfer-encoding', 'content-type', 'date', 'from', 'message-id'],
      ...['mime-version', 'subject', 'to'],
    ]);
    expect(headers).toMatchObject({ 'auto-submitted': 'auto-generated', to: addresses[index] });
    expect(headers.from).toMatch(/^=\?UTF-8\?\S+ <alarms@example\.com>$/);
    const words = [...(headers.subject ?? '').matchAll(/=\?UTF-8\?B\?([^?]*)\?=/g)].map(([, word = '']) => word);
    const encoded = words.map((word) => Buffer.from(word, 'base64').toString()).join('');
    const decoded = Buffer.from(body.replaceAll('=\r\n', '').replaceAll(/=([0-9A-F]{2})/g, '%$1')).toString();
    const text = decodeURIComponent(decoded);
    if (words.length > 0) expect(encoded).toContain('Warning alarm acknowledged: ');
    expect(text).toContain('\r\nbar: on Bcc: y@example.com\r\n');
    expect(text).toContain('\r\nNote: seen . RCPT TO:<z@example.com>\r\nBy: alice\r\nSince: ');
  }
  await waitUntil(async () => (await deliveries()).length === 1);
  const [delivery] = await deliveries();
  expect([delivery.type, delivery.status, delivery.error]).toEqual(['alarm.acknowledged', undefined, undefined]);
});

describe('a refusal of the server', () => {
  it('of an address for now has it tried again, alone; one for good is told', async () => {
    const { addresses, deliveries } = await createHook('abc');
    const [, later = '', never = ''] = addresses;
    replies.set(later, 451).set(never, 550);
    await createProject();
    await waitUntil(async () => (await deliveries()).length === 1);
    const [attempt] = await deliveries();
    expect(attempt.error).toBe(`${later}: 451 5.1.1 refused as 451; ${never}: 550 5.1.1 refused as 550`);
    expect(attempt.next_at).toBeGreaterThan(ctx.service.now());
    expect(mailsTo(addresses)).toHaveLength(1);
    replies.clear();
    ctx.service.advance(6);
    await waitUntil(async () => (await deliveries()).length === 2);
    expect(mailsTo(addresses).map(({ to }) => to)).toEqual([[addresses[0]], [later]]);
    const [retried] = await deliveries();
    expect([retried.attempt, retried.error, retried.next_at]).toEqual([2, undefined, undefined]);
  });

  it('of all addresses for good ends this event only', async () => {
    const { addresses, deliveries } = await createHook('a');
    const [address = ''] = addresses;
    replies.set(address, 550);
    await createProject();
    await waitUntil(async () => (await deliveries()).length === 1);
    const [attempt] = await deliveries();
    expect([attempt.error, attempt.next_at]).toEqual([`${address}: 550 5.1.1 refused as 550`, undefined]);
    replies.clear();
    await createProject();
    await waitUntil(() => mailsTo(addresses).length === 1);
  });
});

it.each([
  ['mailto:'],
  ['mailto:a@example.com?bcc=b@example.com'],
  ['mailto:a@example.com,'],
  ['mailto:a@example.com, b@example.com'],
  ['mailto:a%0d%0a@example.com'],
  ['mailto:<a@example.com>'],
  ['mailto:"a b"@example.com'],
  ['mailto://a@example.com'],
  [`mailto:${Array.from({ length: 11 }, (_, index) => `a${index}@example.com`)}`],
])('refuses %s', async (url) => {
  const reply = await ctx.api.post('/webhooks/', { name: 'refused', url, types: ['*'] });
  expect(summarize(reply)).toBe('4003 url');
});

it('refuses other formats', async () => {
  const url = 'mailto:a@example.com';
  for (const format of ['standard', 'slack'])
    expect(summarize(await ctx.api.post('/webhooks/', { name: 'html', url, types: ['*'], format }))).toBe(
      '4003 format',
    );
  const { path } = await createHook('a');
  expect(summarize(await ctx.api.put(path, { format: 'standard' }))).toBe('4003 format');
  expect(summarize(await ctx.api.put(path, { url: 'https://hooks.example/', format: 'standard' }))).toBe('2005');
  expect(summarize(await ctx.api.put(path, { url }))).toBe('4003 format');
});
