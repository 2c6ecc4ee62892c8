import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from '@jest/globals';
import { type Api, createFixtures, pathOf, type Reply, startTestService } from '../../support/service.js';

/**
 * Which keys may call which operation, and what limited ones reach (reference/access.md#scopes, #limited-keys). A new
 * operation needs one line in `rows`.
 */
const levels = ['project', 'service', 'group', 'asset', 'device'] as const;
type Level = (typeof levels)[number];

/**
 * The scopes that may call an operation, and what it concerns: a level (the object in the path has to be within reach, 404
 * otherwise), `below` a level (the parent in the body has to be, 4003 otherwise), the whole account without its limited keys
 * (`refused`), or nothing in particular (`anything`).
 */
type Subject = Level | `below ${Level}` | 'model' | 'refused' | 'anything' | 'streams';
interface Row {
  scopes: string;
  subject: Subject;
  body?: object | undefined;
  query?: string;
  /** The object that a key is limited to is refused with 403. */
  keepsNamed?: true;
}

const row = (scopes: string, subject: Subject, body?: object, query = ''): Row => ({ scopes, subject, body, query });
const reading = 'read write admin';
const writing = 'write admin';
const sending = 'stream device write admin';
const ofDevice = 'device read write admin';
const stale = { version: 999_999 };

/** Rows of the operations on a type, without those of its children. */
function resourceRows(type: Level | 'model', create: Row): Record<string, Row> {
  const [all, item] = [`/${type}s/`, `/${type}s/{${type}_id_developer}/`];
  const isModel = type === 'model';
  return {
    [`POST ${all}`]: create,
    [`GET ${all}`]: row(reading, 'anything'),
    [`GET ${all}counts/`]: row(reading, 'anything', undefined, '?by=name'),
    [`PATCH ${all}`]: row(writing, isModel ? 'refused' : 'anything', { enabled: true }, '?name=nothing'),
    [`DELETE ${all}`]: row(writing, isModel ? 'refused' : 'anything', undefined, '?name=nothing'),
    [`GET ${item}`]: row(type === 'device' ? ofDevice : reading, type),
    [`PUT ${item}`]: row(writing, isModel ? 'refused' : type, stale),
    [`DELETE ${item}`]: {
      ...row(writing, isModel ? 'refused' : type, undefined, '?dry_run=1'),
      ...(!isModel && { keepsNamed: true as const }),
    },
  };
}

/** Rows of the lists below an object. */
function childRows(parent: Level, child: Level): Record<string, Row> {
  const path = `/${parent}s/{${parent}_id_developer}/${child}s/`;
  return { [`GET ${path}`]: row(reading, parent), [`GET ${path}{${child}_id_developer}/`]: row(reading, parent) };
}

const seriesRows = Object.fromEntries(
  levels.map((level) => [
    `GET /${level}s/{${level}_id_developer}/series/`,
    row(reading, level, undefined, '?fields=level'),
  ]),
);
const result = { status: 'done' };
const config = { name: 'boot', version: '1', file: 'eA==' };
const login = { username: 'pump', password: 'not a secret' };
const hook = '/webhooks/{webhook_id_developer}/';

const rows: Readonly<Record<string, Row>> = {
  ...resourceRows('project', row(writing, 'refused', { id_customer: 'c' })),
  ...resourceRows('service', row(writing, 'below project', {})),
  ...resourceRows('group', row(writing, 'below service', {})),
  ...resourceRows('asset', row(writing, 'below group', {})),
  ...resourceRows('device', row(writing, 'below asset', { type: 't' })),
  ...resourceRows('model', row(writing, 'refused', {})),
  ...childRows('project', 'service'),
  ...childRows('service', 'group'),
  ...childRows('group', 'asset'),
  ...childRows('group', 'device'),
  ...childRows('asset', 'device'),
  ...seriesRows,
  'GET /devices/series/': row(reading, 'refused', undefined, '?fields=level&filter=F@acme'),
  'POST /filters/': row(writing, 'refused', { query: 'type=pump' }),
  'GET /filters/': row(reading, 'refused'),
  'GET /filters/{filter_id_developer}/': row(reading, 'refused'),
  'PUT /filters/{filter_id_developer}/': row(writing, 'refused', stale),
  'DELETE /filters/{filter_id_developer}/': row(writing, 'refused'),
  'GET /alarms/': row(reading, 'anything'),
  'GET /alarms/counts/': row(reading, 'anything', undefined, '?by=state'),
  'PATCH /alarms/': row(writing, 'anything', { note: 'n' }, '?state=closed'),
  'GET /alarms/{alarm_id}/': row(reading, 'device'),
  'PUT /alarms/{alarm_id}/': row(writing, 'device', {}),
  'GET /devices/{device_id_developer}/alarms/': row(reading, 'device'),
  'POST /alarmrules/': row(writing, 'refused', {}),
  'GET /alarmrules/': row(reading, 'anything'),
  'GET /alarmrules/{alarmrule_id_developer}/': row(reading, 'model'),
  'PUT /alarmrules/{alarmrule_id_developer}/': row(writing, 'refused', stale),
  'DELETE /alarmrules/{alarmrule_id_developer}/': row(writing, 'refused'),
  'GET /devices/{device_id_developer}/state/': row(ofDevice, 'device'),
  'PATCH /devices/{device_id_developer}/state/': row(writing, 'device', { a: 1 }),
  'PATCH /devices/{device_id_developer}/state/reported/': row('device write admin', 'device', { a: 1 }),
  'GET /devices/deviceconfigs/counts/': row(reading, 'anything'),
  'PUT /devices/{device_id_developer}/deviceconfigs/{file_name}/desired/': row(writing, 'device', { version: '1' }),
  'POST /devices/{device_id_developer}/deviceconfigs/': row(writing, 'device', config),
  'GET /devices/{device_id_developer}/deviceconfigs/': row(ofDevice, 'device'),
  'GET /devices/{device_id_developer}/deviceconfigs/{file_name}/': row(ofDevice, 'device'),
  'GET /devices/{device_id_developer}/deviceconfigs/{file_name}/{file_version}/': row(ofDevice, 'device'),
  'POST /devices/deviceconfigs/': row(writing, 'anything', config, '?name=nothing'),
  'PUT /devices/deviceconfigs/{file_name}/desired/': row(writing, 'anything', { version: '1' }, '?name=nothing'),
  'POST /devices/commands/': row(writing, 'anything', { name: 'n' }, '?name=nothing'),
  'POST /devices/{device_id_developer}/commands/': row(writing, 'device', { name: 'n' }),
  'GET /devices/{device_id_developer}/commands/': row(ofDevice, 'device'),
  'GET /devices/{device_id_developer}/commands/live/': row(ofDevice, 'device'),
  'GET /devices/{device_id_developer}/commands/{command}/': row(ofDevice, 'device'),
  'DELETE /devices/{device_id_developer}/commands/{command}/': row(writing, 'device'),
  'POST /devices/{device_id_developer}/commands/{command}/result/': row('device write admin', 'device', result),
  'POST /devices/{device_id_developer}/streams/': row(sending, 'device', { data: { level: 1 } }),
  'GET /devices/{device_id_developer}/streams/': row(reading, 'device'),
  'DELETE /devices/{device_id_developer}/streams/': row(writing, 'device', undefined, '?at=7'),
  'GET /devices/{device_id_developer}/streams/live/': row(reading, 'device'),
  'POST /streams/': row(sending, 'below device', { data: { level: 1 } }),
  'POST /status/': row(sending, 'below device', { data: {} }),
  'GET /streams/': row(reading, 'streams'),
  'GET /streams/live/': row(reading, 'anything'),
  'GET /streams/rate/': row(reading, 'refused'),
  'GET /streams/{stream_id_developer}/': row(reading, 'device'),
  // of a stream that is gone, so that no key deletes it for the others
  'DELETE /streams/{stream_id_developer}/': row(writing, 'device'),
  'GET /events/': row(reading, 'anything'),
  'GET /events/live/': row(reading, 'anything'),
  'GET /events/{event}/text/': row('admin', 'refused'),
  'POST /import/': row(writing, 'anything', {}),
  'POST /mqttdevices/{device_id_developer}/credentials/': row(writing, 'device', login),
  'PUT /mqttdevices/{device_id_developer}/credentials/': row(writing, 'device', login),
  'DELETE /mqttdevices/{device_id_developer}/': row(writing, 'device'),
  'POST /mqttdevices/{device_id_developer}/topics/': row(writing, 'device', { name: 'valves/#' }),
  'GET /mqttdevices/{device_id_developer}/topics/': row(reading, 'device'),
  'DELETE /mqttdevices/{device_id_developer}/topics/': row(writing, 'device', { name: 'valves/#' }),
  'GET /mqtt/connections/': row('admin', 'refused'),
  'DELETE /mqtt/connections/{client_id}/': row('admin', 'refused'),
  'POST /apikeys/': row('admin', 'refused', {}),
  'GET /apikeys/': row('admin', 'refused'),
  'DELETE /apikeys/{id}/': row('admin', 'refused'),
  'GET /self/': row('stream device read write admin', 'anything'),
  'PUT /external/{provider}/user/{username}/': row('admin', 'refused', {}),
  'GET /external/{provider}/user/{username}/': row(reading, 'refused', undefined, '?op=all'),
  'DELETE /external/{provider}/user/{username}/': row('admin', 'refused'),
  'POST /webhooks/': row('admin', 'refused', {}),
  'GET /webhooks/': row('admin', 'refused'),
  [`GET ${hook}`]: row('admin', 'refused'),
  [`PUT ${hook}`]: row('admin', 'refused', stale),
  [`DELETE ${hook}`]: row('admin', 'refused'),
  [`POST ${hook}secret/`]: row('admin', 'refused'),
  [`GET ${hook}deliveries/`]: row('admin', 'refused'),
  [`POST ${hook}test/`]: row('admin', 'refused'),
  [`POST ${hook}deliveries/{event}/retry/`]: row('admin', 'refused'),
  'GET /types/': row(reading, 'anything'),
  'GET /sensors/': row(reading, 'anything'),
  'GET /time_zones/': row(reading, 'anything'),
  'GET /locales/': row(reading, 'anything'),
};

/** A kind of key. Without a scope it is none, or one that is not valid. */
interface Kind {
  scope?: string;
  limit?: Level;
  isStranger?: true;
  api: Api;
}

type Branch = Record<Level | 'deviceOfGroup' | 'stream' | 'alarm' | 'command', string>;

/** Objects that do not exist: what is outside has to look like them. */
const nowhere: Branch = {
  ...(Object.fromEntries(levels.map((level) => [level, `nowhere ${level}@acme`])) as Record<Level, string>),
  deviceOfGroup: 'nowhere@acme',
  stream: `${'0'.repeat(64)}@acme`,
  alarm: randomUUID(),
  command: randomUUID(),
};
const kinds = new Map<string, Kind>();

const service = await startTestService();
const admin = await service.client();
await createFixtures(admin).model({ name: 'M' });
const conditions = [{ path: 'level', op: '>', value: 1 }];
await admin.post('/alarmrules/', { name: 'R', severity: 'info', conditions });
await admin.post('/filters/', { name: 'F', query: 'type=pump' });
await admin.post('/webhooks/', { name: 'W', url: 'https://hooks.example/', types: ['*'] });
const inside = await createBranch('in');
const outside = await createBranch('out');
const kind = (name: string, key: Kind) => kinds.set(name, key);
kind('none', { api: service.clientWith(undefined) });
kind('unknown', { api: service.clientWith('x'.repeat(43)) });
const expiring = await issue({ scope: 'read', expires_at: service.now() + 60 });
const revoked = await issue({ scope: 'admin' });
for (const scope of ['stream', 'read', 'write', 'admin']) kind(scope, { scope, api: (await issue({ scope })).api });
for (const level of levels)
  for (const scope of level === 'device' ? ['stream', 'device', 'read'] : ['stream', 'read', 'write']) {
    const { api } = await issue({ scope, [`id_${level}`]: inside[level] });
    kind(`${scope} of the ${level}`, { scope, limit: level, api });
  }
const stranger = await service.client({ account: 'stranger' });
kind('admin of another account', { scope: 'admin', isStranger: true, api: stranger });
expect((await expiring.api.get('/self/')).status).toBe(200);
await admin.delete(pathOf('apikeys', revoked.id));
service.advance(60);
kind('expired', { api: expiring.api });
kind('revoked', { api: revoked.api });
afterAll(() => service.stop());

async function createBranch(name: string): Promise<Branch> {
  const fixtures = createFixtures(admin);
  const project = await fixtures.project({ name: `${name} p` });
  const id_service = await fixtures.service({ name: `${name} s`, id_project: project });
  const group = await fixtures.group({ name: `${name} g`, id_service });
  const asset = await fixtures.asset({ name: `${name} a`, id_group: group });
  const device = await fixtures.device({ name: `${name} d`, id_asset: asset });
  const deviceOfGroup = await fixtures.device({ name: `${name} e`, id_group: group });
  await admin.post(pathOf('devices', device, 'deviceconfigs'), { name: 'boot', version: '1', file: 'eA==' });
  await admin.post(pathOf('devices', device, 'streams'), { at: 9, data: { level: 1 } });
  const stream = (await admin.get(pathOf('devices', device, 'streams'))).body.result[0].id_developer;
  const command = (await admin.post(pathOf('devices', device, 'commands'), { name: 'n' })).body.details.id;
  await admin.post(pathOf('devices', device, 'streams'), { at: 10, data: { level: 2 } });
  const alarm = (await admin.get(pathOf('devices', device, 'alarms'))).body.result[0].id;
  return { project, service: id_service, group, asset, device, deviceOfGroup, stream, alarm, command };
}

async function issue(body: object): Promise<{ id: string; api: Api }> {
  const { details } = (await admin.post('/apikeys/', { username: 'bob', ...body })).body;
  return { id: details.id, api: service.clientWith(details.key) };
}

/** The path of an operation with the objects of a branch. */
function fillPath(path: string, branch: Branch): string {
  const values: Readonly<Record<string, string>> = {
    ...Object.fromEntries(levels.map((level) => [`${level}_id_developer`, branch[level]])),
    ...(path.startsWith('/groups/') && { device_id_developer: branch.deviceOfGroup }),
    model_id_developer: 'M@acme',
    alarmrule_id_developer: 'R@acme',
    filter_id_developer: 'F@acme',
    stream_id_developer: branch.stream,
    command: branch.command,
    alarm_id: branch.alarm,
    webhook_id_developer: 'W@acme',
    file_name: 'boot',
    file_version: '1',
    provider: 'local',
    username: 'alice',
    id: randomUUID(),
    event: '69214e6f0000000100',
  };
  return path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] ?? name));
}

/** The body of a row; objects that are created get a parent of the branch. */
function fillBody({ subject, body }: Row, branch: Branch): object | undefined {
  if (body === undefined) return undefined;
  if (!subject.startsWith('below')) return subject === 'refused' ? { name: randomUUID(), ...body } : body;
  const level = subject.slice('below '.length) as Level;
  return level === 'device'
    ? { ...body, device: branch.device }
    : { ...body, name: randomUUID(), [`id_${level}`]: branch[level] };
}

type Outcome = 'allowed' | '401' | '403' | '404' | '4003 parent';

/** The outcome that the table says. */
function outcomeOf(
  { scopes, subject, keepsNamed }: Row,
  { scope, limit, isStranger }: Kind,
  isOutside: boolean,
): Outcome {
  if (scope === undefined) return '401';
  if (!scopes.split(' ').includes(scope)) return '403';
  if (limit !== undefined && subject === 'refused') return '403';
  if (subject === 'streams') return limit === undefined || limit === 'device' ? 'allowed' : '403';
  if (subject === 'refused' || subject === 'anything') return 'allowed';
  const isBelow = subject.startsWith('below ');
  const level = (isBelow ? subject.slice('below '.length) : subject) as Level | 'model';
  const isHidden = isBelow ? '4003 parent' : '404';
  if (isStranger) return isHidden;
  if (limit === undefined || level === 'model') return 'allowed';
  if (isOutside || levels.indexOf(level) < levels.indexOf(limit)) return isHidden;
  return keepsNamed && level === limit ? '403' : 'allowed';
}

interface Answer {
  outcome: Outcome;
  status: number;
  text: string;
}

async function request(kind: Kind, operation: string, row: Row, branch: Branch): Promise<Answer> {
  const [method = '', path = ''] = operation.split(' ');
  // the head of a feed, which has no end
  const sent = path.endsWith('/live/') ? 'HEAD' : method;
  const body = fillBody(row, branch);
  const target = fillPath(path, branch) + row.query;
  const json = { 'Content-Type': 'application/json' };
  const reply = await kind.api.send(sent, target, json, body && JSON.stringify(body));
  const { status, text } = reply;
  if (status >= 500 && row.subject !== 'refused') throw new Error(`${operation}: ${text}`);
  return { outcome: summarize(kind, row, reply), status, text };
}

function summarize({ scope }: Kind, { subject }: Row, { status, body }: Reply): Outcome {
  if (subject === 'refused' && (status === 404 || (body?.message === 'unauthorized' && scope !== undefined)))
    return 'allowed';
  const isParentMissing = body?.code === 4003 && Object.values(body.details).includes('does not exist');
  if (isParentMissing) return '4003 parent';
  return [401, 403, 404].includes(status) ? (`${status}` as Outcome) : 'allowed';
}

it('has a row for every operation, and no others', () => {
  const served = service.operations.map(({ method, path }) => `${method.toUpperCase()} ${path}`);
  expect(Object.keys(rows).sort()).toEqual(served.sort());
});

/** Creates again what a call has deleted, so that every key finds the same. */
async function restore(operation: string): Promise<void> {
  if (!operation.startsWith('DELETE')) return;
  for (const { device } of [inside, outside]) {
    if (operation.includes('mqttdevices') && !operation.includes('topics'))
      await admin.post(pathOf('mqttdevices', device, 'credentials'), { ...login, username: device });
    if (operation.includes('topics')) await admin.post(pathOf('mqttdevices', device, 'topics'), { name: 'valves/#' });
    if (operation.includes('/streams/{')) {
      await admin.post(pathOf('devices', device, 'streams'), { data: {} });
      const { result } = (await admin.get(pathOf('devices', device, 'streams'))).body;
      (device === inside.device ? inside : outside).stream = result[0].id_developer;
    }
  }
}

/** Reports whether the subject of a row has a place that a limit can leave outside. */
const isPlaced = ({ subject }: Row) => levels.some((level) => subject === level || subject === `below ${level}`);

describe.each(Object.entries(rows))('%s', (operation, operationRow) => {
  it('is allowed to the keys of the table', async () => {
    const [expected, actual]: [Record<string, unknown>, Record<string, unknown>] = [{}, {}];
    async function check([name, kind]: [string, Kind]): Promise<void> {
      await restore(operation);
      expected[name] = outcomeOf(operationRow, kind, false);
      actual[name] = (await request(kind, operation, operationRow, inside)).outcome;
      if (kind.limit === undefined || !isPlaced(operationRow)) return;
      const answer = await request(kind, operation, operationRow, outside);
      expected[`${name}, outside`] = {
        ...(await request(kind, operation, operationRow, nowhere)),
        outcome: outcomeOf(operationRow, kind, true),
      };
      actual[`${name}, outside`] = answer;
    }
    if (operation.startsWith('DELETE')) for (const kind of kinds) await check(kind);
    else await Promise.all([...kinds].map(check));
    expect(actual).toEqual(expected);
  });
});
