import { afterAll, describe, expect, it } from '@jest/globals';
import { createAlarmTools } from '../../support/alarms.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { answerWith, startReceiver } from '../../support/receiver.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService({
  ...{ eventLog: true, deliver: true, webhook_allow_nets: ['127.0.0.0/8'] },
  ...{ public_url: 'https://devices.example', console_dir: 'tests/support' },
});
const tools = createAlarmTools(ctx);
const secretPattern = /^whsec_[A-Za-z0-9+/]{43}=$/;
const receiver = await startReceiver();
let number = 0;
afterAll(() => receiver.close());

async function createHook(fields: object): Promise<string> {
  const body = { name: `hook ${++number}`, url: `${receiver.url}?n=${number}`, types: ['alarm.'], ...fields };
  const created = await ctx.api.post('/webhooks/', body);
  expect([summarize(created), created.body.details]).toEqual(['2001', {}]);
  return created.headers.location ?? '';
}

const receivedBy = (path: string) => receiver.received.filter((request) => request.path.startsWith(path));
const latestAt = (count: number) => receivedBy(`/events?n=${count}`);
const deliveriesOf = async (path: string) => (await ctx.api.get(`${path}deliveries/`)).body.result;

/** Names and texts that try to mention, link, format, and begin lines and headers. */
const evil = '<!channel> @everyone [x](http://evil)';
const at = 1_767_225_600;

/** Raises an alarm at a device with such names. */
async function raiseAlarm(fields: object = {}): Promise<void> {
  const id_model = await ctx.fixtures.model({ measures: [{ path: '/bar', name: 'Pressure *', unit: 'bar' }] });
  const device = await ctx.fixtures.device({ name: evil, id_model, time_zone: 'America/New_York' });
  await ctx.api.post('/alarmrules/', {
    ...{ name: `Over_${++number}`, severity: 'critical', id_device: device },
    conditions: [{ path: 'bar', op: '>', value: 8 }],
    ...fields,
  });
  await tools.send(device, { data: { bar: 9.5 }, at });
}

describe('the settings', () => {
  const hook = (fields: object) => ({
    name: `set ${++number}`,
    url: 'https://hooks.example/',
    types: ['*'],
    ...fields,
  });
  const standard = { format: 'standard', digest_s: 0 };

  it.each([
    [{ url: 'mailto:a@example.com' }, '4003 url'],
    [{ format: 'html' }, '4003 format'],
    [{ digest_s: 3601, format: 'text' }, '4003 digest_s'],
    [{ digest_s: 1 }, '4003 digest_s'],
    [{ format: 'slack', digest_s: 1.5 }, '4003 digest_s'],
  ])('refuse %j', async (fields, expected) => {
    expect(summarize(await ctx.api.post('/webhooks/', hook(fields)))).toBe(expected);
  });

  it('have a default of their own for texts, and a secret for standard only', async () => {
    const body = hook({ format: 'slack' });
    const created = await ctx.api.post('/webhooks/', body);
    expect(created.body.details).toEqual({});
    const path = created.headers.location ?? '';
    expect((await ctx.api.get(path)).body).toMatchObject({ format: 'slack', digest_s: 60 });
    expect((await ctx.api.post(`${path}secret/`)).body).toMatchObject({
      code: 4003,
      details: { format: 'must be standard' },
    });
    const changed = await ctx.api.put(path, { format: 'standard' });
    const { secret } = changed.body.details;
    expect(changed.body.details).toMatchObject({
      ...standard,
      secret: expect.stringMatching(secretPattern),
      version: 1,
    });
    const shown = (await ctx.api.get(path)).body;
    expect(shown).toMatchObject(standard);
    expect(shown.secret).toBeUndefined();
    // an update that says the same keeps the secret
    expect((await ctx.api.put(path, { ...shown, description: 'x' })).body.details.secret).toBeUndefined();
    const renewed = await ctx.api.post(`${path}secret/`);
    expect(renewed.body.details.secret).not.toBe(secret);
    expect(summarize(await ctx.api.put(path, { digest_s: 5 }))).toBe('4003 digest_s');
    expect((await ctx.api.put(path, { format: 'text' })).body.details).toMatchObject({ format: 'text', digest_s: 60 });
    const stored = await ctx.service.db.collection('webhooks').findOne({ name: body.name });
    expect([stored?.secret, stored?.key_id]).toEqual([undefined, undefined]);
    const reset = (await ctx.api.put(path, { format: null })).body.details;
    expect(reset).toMatchObject({ ...standard, secret: expect.stringMatching(secretPattern) });
  });
});

it('an alarm is told in every format, without mentions and links of others', async () => {
  const formats = ['text', 'slack', 'teams', 'discord', 'ntfy'];
  const first = number + 1;
  for (const format of formats) await createHook({ format });
  await raiseAlarm();
  const rule = `Over_${number}`;
  await waitUntil(() => formats.every((_, index) => latestAt(first + index).length === 1));
  const [text, slack, teams, discord, ntfy] = formats.map((_, index) => latestAt(first + index)[0]);
  const { result } = (await ctx.api.get(`/alarms/?rule=${rule}%40acme`)).body;
  const [{ id_project, id_service, id_group, raised_at, device }] = result;
  const names = [id_project, id_service, id_group].map((id: string) => id.slice(0, -'@acme'.length)).join(' › ');
  const since = new Date(raised_at * 1000).toLocaleString('en-GB', {
    ...{ dateStyle: 'medium', timeStyle: 'medium', timeZone: 'America/New_York' },
  });
  const title = `Critical alarm raised: ${rule} at ${evil}`;
  const lines = [
    'Severity: critical',
    `Rule: ${rule}`,
    `Device: ${evil}`,
    `Part of: ${names}`,
    'Pressure *: 9.5 bar',
    `Since: ${since} (America/New_York)`,
  ];
  const link = `https://devices.example/console/devices/${encodeURIComponent(device)}`;
  const all = `${lines.join('\n')}\n\n${link}`;
  expect(text).toMatchObject({
    headers: { 'content-type': 'text/plain; charset=utf-8' },
    body: `${title}\n\n${all}\n`,
  });
  expect(text?.headers['webhook-signature']).toBeUndefined();
  expect(JSON.parse(slack?.body ?? '')).toEqual({
    text: `${title}\n${all}`.replaceAll('<', '&lt;').replaceAll('>', '&gt;'),
    ...{ mrkdwn: false, unfurl_links: false, unfurl_media: false },
  });
  const run = (part: string, style: object = {}) => ({
    type: 'RichTextBlock',
    inlines: [{ type: 'TextRun', text: part, ...style }],
  });
  expect(JSON.parse(teams?.body ?? '')).toEqual({
    type: 'message',
    attachments: [
      {
        contentType: 'application/vnd.microsoft.card.adaptive',
        contentUrl: null,
        content: {
          $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
          type: 'AdaptiveCard',
          version: '1.4',
          body: [run(title, { weight: 'Bolder', size: 'Medium' }), ...lines.map((line) => run(line))],
          actions: [{ type: 'Action.OpenUrl', title: 'Open the console', url: link }],
        },
      },
    ],
  });
  const [embed] = JSON.parse(discord?.body ?? '').embeds;
  expect(discord?.path).toMatch(/&wait=true$/);
  expect(JSON.parse(discord?.body ?? '').allowed_mentions).toEqual({ parse: [] });
  expect(embed.title).toContain('\\<!channel\\> \\@everyone \\[x\\](http://evil)');
  expect(embed.description).toContain('\nPressure \\*: 9.5 bar\n');
  expect(embed.url).toBe(link);
  expect(ntfy?.headers).toMatchObject({ title, priority: '5', click: link });
  expect(ntfy?.body).toBe(lines.join('\n'));
  const [raised] = (await ctx.api.get('/events/?type=alarm.raised&max=1')).body.result;
  expect((await ctx.api.get(`/events/${raised.id}/text/`)).body).toEqual({ subject: title, text: all });
  expect(summarize(await ctx.api.get(`/events/${'0'.repeat(18)}/text/`))).toBe('4041');
  expect(summarize(await ctx.api.get('/events/x/text/'))).toBe('4004 event');
});

it('what comes within digest_s is one message, which is sent again whole', async () => {
  const path = await createHook({ format: 'text', types: ['project.'], digest_s: 60 });
  const mine = `/events?n=${number}`;
  const names = ['a', 'b', 'c'].map((name) => `${name} ${++number}`);
  const [first = '', ...others] = names;
  const create = (name: string) => ctx.api.post('/projects/', { name, id_customer: 'c' });
  await create(first);
  await waitUntil(() => receivedBy(mine).length === 1);
  expect(receivedBy(mine)[0]?.body).toMatch(`Project created: ${first}\n\nAbout: ${first}\nBy: alice\nAt: `);
  for (const name of others) await create(name);
  await ctx.api.delete(pathOf('projects', `${first}@acme`));
  await waitUntil(async () => (await ctx.api.get('/events/?type=project.deleted')).body.total_documents > 0);
  receiver.answer(answerWith(500));
  ctx.service.advance(59);
  const tested = await ctx.api.post(`${path}test/`);
  expect(tested.body.details).toMatchObject({ type: 'webhook.test', status: 500 });
  expect(receivedBy(mine)).toHaveLength(2);
  ctx.service.advance(1);
  await waitUntil(() => receivedBy(mine).length === 3);
  const [, , digest] = receivedBy(mine);
  const lines = (digest?.body ?? '').split('\n').map((line) => line.replace(/^\d\d:\d\d UTC/, 'TIME'));
  expect(lines).toEqual([
    '3 events: 2 × Project created, 1 × Project deleted',
    '',
    '2 × Project created',
    '1 × Project deleted',
    '',
    ...others.map((name) => `TIME Project created: ${name}`),
    `TIME Project deleted: ${first}`,
    '',
    'https://devices.example/console/events',
    '',
  ]);
  await waitUntil(async () => (await deliveriesOf(path)).length === 3);
  const [attempt] = await deliveriesOf(path);
  expect(attempt).toMatchObject({ type: 'project.created', count: 3, attempt: 1, status: 500 });
  expect(attempt.message).toBeUndefined();
  receiver.answer(undefined);
  ctx.service.advance(6);
  await waitUntil(() => receivedBy(mine).length === 4);
  const retried = await ctx.api.post(`${path}deliveries/${attempt.event}/retry/`);
  expect(retried.body.details).toMatchObject({ event: attempt.event, type: 'project.created', count: 3, status: 204 });
  expect(
    receivedBy(mine)
      .slice(3)
      .map(({ body }) => body),
  ).toEqual([digest?.body, digest?.body]);
});
