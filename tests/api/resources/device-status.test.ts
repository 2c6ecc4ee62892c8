import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { XMLParser } from 'fast-xml-parser';
import { createFixtures, pathOf, startTestService } from '../../support/service.js';

let id_group = '';

const service = await startTestService();
const api = await service.client();
const fixtures = createFixtures(api);
afterAll(() => service.stop());
beforeEach(async () => {
  id_group = await fixtures.group();
});

const minute = 60;
const day = 1440 * minute;
const timeFields = ['last_stream_at', 'last_status_at', 'stream_due_at', 'status_due_at'];

const create = (fields: object = {}) => fixtures.device({ id_group, ...fields });
const show = async (id: string) => (await api.get(pathOf('devices', id))).body;
const statusOf = async (id: string): Promise<string> => (await show(id)).status;
const change = async (id: string, body: object) => {
  const reply = await api.put(pathOf('devices', id), body);
  expect(reply.body.code).toBe(2005);
  return reply.body.details;
};
const sendData = (id: string, fields: object = {}) => send(id, { _t: 'str', ...fields });
const sendStatus = (id: string, fields: object = {}) => send(id, { _t: 'sta', ...fields });
async function send(id: string, entry: object) {
  expect((await api.post(pathOf('devices', id, 'streams'), { data: {}, ...entry })).body.code).toBe(2001);
}
const inGroup = async (query: string) => (await api.get(`${pathOf('groups', id_group, 'devices')}${query}`)).body;
const idsOf = ({ result }: { result: { id_developer: string }[] }) => result.map(({ id_developer }) => id_developer);

describe('the status of a device', () => {
  it('is disconnected before the first stream, without times', async () => {
    const shown = await show(await create());
    expect(shown.status).toBe('disconnected');
    for (const field of timeFields) expect(shown).not.toHaveProperty(field);
  });

  it('takes all four values and changes exactly at each deadline', async () => {
    const id = await create({ frequency_stream: 2, frequency_status: 3 });
    const startedAt = service.now();
    await sendData(id);
    expect(await statusOf(id)).toBe('no_status');
    await sendStatus(id);
    expect(await statusOf(id)).toBe('ok');
    service.advance(2 * minute - 1);
    expect(await statusOf(id)).toBe('ok');
    service.advance(1);
    expect(await statusOf(id)).toBe('no_data');
    await sendData(id);
    expect(await statusOf(id)).toBe('ok');
    service.advance(minute - 1);
    expect(await statusOf(id)).toBe('ok');
    service.advance(1);
    expect(await statusOf(id)).toBe('no_status');
    service.advance(minute - 1);
    expect(await statusOf(id)).toBe('no_status');
    service.advance(1);
    expect(await statusOf(id)).toBe('disconnected');
    expect(await show(id)).toMatchObject({
      last_stream_at: startedAt + 2 * minute,
      last_status_at: startedAt,
      stream_due_at: startedAt + 4 * minute,
      status_due_at: startedAt + 3 * minute,
    });
  });

  it('shows the times of a kind of stream after the first one', async () => {
    const id = await create({ frequency_stream: 10 });
    await sendData(id);
    const now = service.now();
    const shown = await show(id);
    expect(shown).toMatchObject({ last_stream_at: now, stream_due_at: now + 10 * minute });
    for (const field of ['last_status_at', 'status_due_at']) expect(shown).not.toHaveProperty(field);
    service.advance(5);
    await sendStatus(id);
    expect(await show(id)).toMatchObject({
      last_stream_at: now,
      stream_due_at: now + 10 * minute,
      last_status_at: now + 5,
      status_due_at: now + 5 + day,
    });
    const xml = await api.get(pathOf('devices', id), { Accept: 'application/xml' });
    expect(new XMLParser().parse(xml.text).device).toMatchObject({ status: 'ok', last_stream_at: now });
  });

  it('depends on the time of receipt, not on `at`', async () => {
    const id = await create({ frequency_stream: 1 });
    await sendData(id, { at: 0 });
    expect(await show(id)).toMatchObject({ status: 'no_status', last_stream_at: service.now() });
    service.advance(minute);
    await sendData(id, { at: 1 });
    service.advance(minute - 1);
    expect(await statusOf(id)).toBe('no_status');
    service.advance(1);
    expect(await statusOf(id)).toBe('disconnected');
    await sendStatus(id, { at: service.now() + 10 * day });
    service.advance(day);
    expect(await statusOf(id)).toBe('disconnected');
  });

  it('follows streams of every endpoint, but not rejected ones', async () => {
    const [first, second] = [await create(), await create()];
    await api.post('/streams/', [
      { device: first, data: {} },
      { device: second, data: {} },
    ]);
    await api.post('/status/', { device: second, data: {} });
    expect([await statusOf(first), await statusOf(second)]).toEqual(['no_status', 'ok']);
    service.advance(5);
    await api.post('/streams/', [
      { device: first, data: {} },
      { device: 'missing@acme', data: {} },
    ]);
    await api.post(pathOf('devices', first, 'streams'), { data: 5 });
    expect(await show(first)).toMatchObject({ last_stream_at: service.now() - 5 });
  });

  it('counts all entries of a request, of both kinds', async () => {
    const id = await create();
    await api.post(pathOf('devices', id, 'streams'), [{ data: {} }, { data: {}, _t: 'sta' }, { data: {} }]);
    expect(await statusOf(id)).toBe('ok');
  });

  it('changes the entity tag, but not the version', async () => {
    const id = await create({ frequency_stream: 1 });
    await sendData(id);
    const first = await api.get(pathOf('devices', id));
    const ifNoneMatch = { 'If-None-Match': first.headers.etag ?? '' };
    expect((await api.get(pathOf('devices', id), ifNoneMatch)).status).toBe(304);
    service.advance(minute);
    const second = await api.get(pathOf('devices', id), ifNoneMatch);
    expect([second.status, second.body.status, second.body.version]).toEqual([200, 'disconnected', 0]);
    expect((await api.put(pathOf('devices', id), { sensor: 'x', version: 0 })).body.code).toBe(2005);
  });

  it('is read-only, like its times', async () => {
    const id = await create({ status: 'ok', last_stream_at: 5, stream_due_at: 1e12 });
    expect(await statusOf(id)).toBe('disconnected');
    const changed = await change(id, { status: 'ok', last_stream_at: 5, stream_due_at: 1e12, status_due_at: 1e12 });
    expect(changed.status).toBe('disconnected');
    for (const field of timeFields) expect(changed).not.toHaveProperty(field);
  });
});

describe('a changed frequency', () => {
  it('applies immediately, counted from the last stream', async () => {
    const id = await create({ frequency_stream: 10, frequency_status: 10 });
    const startedAt = service.now();
    await sendData(id);
    await sendStatus(id);
    service.advance(5 * minute);
    expect(await change(id, { frequency_stream: 5 })).toMatchObject({
      status: 'no_data',
      last_stream_at: startedAt,
      stream_due_at: startedAt + 5 * minute,
      status_due_at: startedAt + 10 * minute,
    });
    expect((await change(id, { frequency_stream: 6 })).status).toBe('ok');
    service.advance(minute);
    expect(await statusOf(id)).toBe('no_data');
    expect((await change(id, { frequency_stream: 10_000 })).status).toBe('ok');
    expect((await change(id, { frequency_status: 1 })).status).toBe('no_status');
    expect((await inGroup('?status=no_status')).total_documents).toBe(1);
  });

  it('is reset to one day by null', async () => {
    const id = await create({ frequency_stream: 1 });
    await sendData(id);
    const startedAt = service.now();
    service.advance(minute);
    expect(await change(id, { frequency_stream: null })).toMatchObject({
      frequency_stream: 1440,
      status: 'no_status',
      stream_due_at: startedAt + day,
    });
  });

  it('has no effect before the first stream and applies from then on', async () => {
    const id = await create();
    expect((await change(id, { frequency_stream: 1, frequency_status: 1 })).status).toBe('disconnected');
    for (const field of timeFields) expect(await show(id)).not.toHaveProperty(field);
    await sendData(id);
    expect(await show(id)).toMatchObject({ status: 'no_status', stream_due_at: service.now() + minute });
  });

  it('may be any integer up to 2^53 - 1', async () => {
    for (const frequency_stream of [2_147_483_647, Number.MAX_SAFE_INTEGER]) {
      const id = await create({ frequency_stream });
      await sendData(id);
      service.advance(1000 * day);
      const shown = await show(id);
      expect(shown.status).toBe('no_status');
      expect(shown.stream_due_at / minute / frequency_stream).toBeCloseTo(1, 1);
      expect((await inGroup('?status=no_status')).total_documents).toBe(1);
      await api.delete(pathOf('devices', id));
    }
  });

  it('yields a deadline that fits both when a stream arrives at the same time, 60 rounds', async () => {
    const ids = await Promise.all(Array.from({ length: 60 }, () => create({ frequency_stream: 7 })));
    await Promise.all(ids.map((id) => sendData(id)));
    service.advance(30);
    await Promise.all(ids.flatMap((id, index) => [sendData(id), change(id, { frequency_stream: 1 + (index % 5) })]));
    for (const [index, id] of ids.entries()) {
      const frequency_stream = 1 + (index % 5);
      expect(await show(id)).toMatchObject({
        frequency_stream,
        last_stream_at: service.now(),
        stream_due_at: service.now() + frequency_stream * minute,
      });
    }
  });
});

describe('the indexed bounds of the deadlines', () => {
  const stored = (id: string) => service.db.collection('devices').findOne({ id_developer: id });

  it('move only when half a period is left, and enclose the deadline', async () => {
    const id = await create({ frequency_stream: 10, frequency_status: 4 });
    const startedAt = service.now();
    for (const [after, safe_until] of [
      [0, 10],
      [1, 10],
      [5, 10],
      [6, 16],
      [11, 16],
      [30, 40],
    ] as const) {
      service.advance(startedAt + after * minute - service.now());
      await sendData(id);
      expect(await stored(id)).toMatchObject({
        stream_due_at: startedAt + (after + 10) * minute,
        stream_safe_until: startedAt + safe_until * minute,
        stream_late_from: startedAt + (safe_until + 5) * minute,
        status_due_at: 0,
        status_safe_until: 0,
      });
    }
    await change(id, { frequency_stream: 2 });
    const due_at = startedAt + 32 * minute;
    expect(await stored(id)).toMatchObject({
      stream_due_at: due_at,
      stream_safe_until: due_at,
      stream_late_from: due_at + minute,
    });
    await sendStatus(id);
    expect(await stored(id)).toMatchObject({ status_safe_until: service.now() + 4 * minute });
  });

  it('find each device by the status that it shows, whenever it sent', async () => {
    const periods = [1, 2, 3, 5, 8];
    const ids: string[] = [];
    for (const frequency_stream of periods)
      for (const frequency_status of periods) ids.push(await create({ frequency_stream, frequency_status }));
    for (let round = 0; round < 24; round++) {
      const entries = ids.flatMap((device, index) => [
        ...((index * 7 + round) % 4 === 0 ? [{ device, _t: 'str', data: {} }] : []),
        ...((index * 5 + round) % 6 === 0 ? [{ device, _t: 'sta', data: {} }] : []),
      ]);
      if (entries.length > 0) await api.post('/streams/', entries);
      service.advance(round % 3 === 0 ? minute - 1 : 20 + round);
      const shown = new Map<string, string>();
      for (const device of (await inGroup('?max=100')).result) shown.set(device.id_developer, device.status);
      for (const status of ['ok', 'no_data', 'no_status', 'disconnected']) {
        const expected = ids.filter((id) => shown.get(id) === status).toSorted();
        const page = await inGroup(`?status=${status}&max=100`);
        expect([page.total_documents, idsOf(page)]).toEqual([expected.length, expected]);
        const all = (await api.get(`/devices/?status=${status}&max=1000`)).body;
        expect(idsOf(all).filter((id) => ids.includes(id))).toEqual(expected);
      }
    }
  });

  it('are refreshed for devices that fell silent between two moves', async () => {
    const id = await create({ frequency_stream: 10 });
    await sendData(id);
    service.advance(4 * minute);
    await sendData(id);
    service.advance(8 * minute);
    expect((await stored(id))?.stream_safe_until).toBe(service.now() - 2 * minute);
    expect(idsOf(await inGroup('?status=no_status'))).toEqual([id]);
    expect(await stored(id)).toMatchObject({
      stream_safe_until: service.now() + 2 * minute,
      stream_late_from: service.now() + 7 * minute,
    });
    service.advance(2 * minute);
    expect(idsOf(await inGroup('?sort=status'))).toEqual([id]);
    expect(idsOf(await inGroup('?status=disconnected'))).toEqual([id]);
  });
});

it('status: keeps changing while a device is disabled, and is right when it is enabled again', async () => {
  const id = await create({ frequency_stream: 5, frequency_status: 10 });
  await sendData(id);
  await sendStatus(id);
  expect((await change(id, { enabled: false })).status).toBe('ok');
  service.advance(5 * minute);
  expect(await statusOf(id)).toBe('no_data');
  expect((await api.post(pathOf('devices', id, 'streams'), { data: {} })).body.code).toBe(4003);
  expect((await change(id, { enabled: true })).status).toBe('no_data');
  await sendData(id);
  expect(await statusOf(id)).toBe('ok');
});

it('status: stays when streams are deleted', async () => {
  const id = await create();
  await sendData(id);
  const before = await show(id);
  await api.delete(pathOf('devices', id, 'streams'));
  expect(await show(id)).toEqual(before);
});

describe('lists', () => {
  const statuses = ['disconnected', 'no_data', 'no_status', 'ok'] as const;
  /** 5 disconnected (2 late, 3 new), 3 no_data, 4 no_status and 2 ok, in mixed order. */
  const fleetStatuses =
    'disconnected no_data ok no_status disconnected no_status no_data disconnected no_status disconnected ok no_data disconnected no_status'.split(
      ' ',
    );

  async function createFleet(): Promise<{ id: string; status: string }[]> {
    const devices: { id: string; status: string }[] = [];
    for (const status of fleetStatuses) {
      devices.push({ id: await create({ frequency_stream: 10, frequency_status: 10, name: 'twin' }), status });
    }
    const lateDevices = devices.filter(({ status }) => status === 'disconnected').slice(0, 2);
    for (const { id } of lateDevices) {
      await sendData(id);
      await sendStatus(id);
    }
    service.advance(10 * minute);
    for (const { id, status } of devices) {
      if (status === 'ok' || status === 'no_status') await sendData(id);
      if (status === 'ok' || status === 'no_data') await sendStatus(id);
    }
    return devices;
  }

  it('filter by the current status, with exact totals', async () => {
    const devices = await createFleet();
    const withStatus = (status: string) => devices.filter((device) => device.status === status).map(({ id }) => id);
    for (const status of statuses) {
      const expected = withStatus(status);
      const found = await inGroup(`?status=${status}`);
      expect(found.total_documents).toBe(expected.length);
      expect(idsOf(found).sort()).toEqual([...expected].sort());
      expect(new Set(found.result.map((device: { status: string }) => device.status))).toEqual(new Set([status]));
      const page = await inGroup(`?status=${status}&max=1&offset=1`);
      expect([page.total_documents, page.result.length]).toEqual([expected.length, 1]);
      const account = await api.get(`/devices/?status=${status}&id_group=${encodeURIComponent(id_group)}&max=1`);
      expect(account.body.total_documents).toBe(expected.length);
    }
    expect((await inGroup('?status=ok&enabled=false')).total_documents).toBe(0);
    expect((await inGroup('?status=ok&_t=sta')).total_documents).toBe(2);

    service.advance(10 * minute - 1);
    expect((await inGroup('?status=ok')).total_documents).toBe(2);
    service.advance(1);
    expect((await inGroup('?status=disconnected')).total_documents).toBe(fleetStatuses.length);
    for (const status of ['ok', 'no_data', 'no_status'])
      expect(await inGroup(`?status=${status}`)).toEqual({ total_documents: 0, result: [] });
  });

  it('sort by status, then creation, in both directions and on every page', async () => {
    const devices = await createFleet();
    const ascending = statuses.flatMap((status) =>
      devices.filter((device) => device.status === status).map(({ id }) => id),
    );
    const total_documents = fleetStatuses.length;
    for (const [order, expected] of [
      ['', ascending],
      ['&order=-1', ascending.toReversed()],
    ] as const) {
      const fullList = await inGroup(`?sort=status${order}`);
      expect(fullList.total_documents).toBe(total_documents);
      expect(idsOf(fullList)).toEqual(expected);
      const pages = [0, 1, 4, 5, 6, 8, 11, 12, 13, 14, 20].flatMap((offset) =>
        [1, 3, 6, 14].map((max) => [offset, max] as const),
      );
      const replies = await Promise.all(
        pages.map(async ([offset, max]) => inGroup(`?sort=status${order}&offset=${offset}&max=${max}`)),
      );
      for (const [index, [offset, max]] of pages.entries()) {
        const page = replies[index];
        expect([offset, max, page.total_documents]).toEqual([offset, max, total_documents]);
        expect(idsOf(page)).toEqual(expected.slice(offset, offset + max));
      }
    }
    const filtered = await inGroup('?sort=status&status=no_status&order=-1');
    expect(idsOf(filtered)).toEqual(
      devices
        .filter(({ status }) => status === 'no_status')
        .map(({ id }) => id)
        .toReversed(),
    );
    expect(filtered.total_documents).toBe(4);
    const xml = await api.get(`${pathOf('groups', id_group, 'devices')}?sort=status&max=6&offset=1`, {
      Accept: 'application/xml',
    });
    const shown = new XMLParser().parse(xml.text).response;
    expect(shown.total_documents).toBe(total_documents);
    expect(shown.result.device.map((device: { id_developer: string }) => device.id_developer)).toEqual(
      ascending.slice(1, 7),
    );
  });

  it('filter devices that have ever received a kind of stream, even if it was deleted', async () => {
    const [none, str, sta, both] = [await create(), await create(), await create(), await create()];
    for (const id of [str, both]) await sendData(id);
    for (const id of [sta, both]) await sendStatus(id);
    await api.delete(pathOf('devices', both, 'streams'));
    service.advance(100 * day);
    expect(idsOf(await inGroup('?_t=str&sort=created_at'))).toEqual([str, both]);
    expect(idsOf(await inGroup('?_t=sta&sort=created_at'))).toEqual([sta, both]);
    expect(idsOf(await inGroup('?sort=created_at'))).toEqual([none, str, sta, both]);
  });

  it('sort by the times, devices without one first', async () => {
    const [late, never, early] = [await create(), await create(), await create()];
    await sendData(early);
    service.advance(5);
    await sendData(late);
    for (const field of ['last_stream_at', 'stream_due_at']) {
      expect(idsOf(await inGroup(`?sort=${field}`))).toEqual([never, early, late]);
      expect(idsOf(await inGroup(`?sort=${field}&order=-1`))).toEqual([late, early, never]);
    }
  });

  it('reject any other status with 4004', async () => {
    for (const status of ['OK', '', 'late', 'ok,no_data', '1']) {
      const reply = await api.get(`/devices/?status=${status}`);
      expect([reply.status, reply.body]).toMatchObject([400, { code: 4004, details: { status: expect.any(String) } }]);
    }
  });
});

it('answers the filter by status from an index', async () => {
  const account = { account: 'acme' };
  const late = { stream_safe_until: { $lte: service.now() }, status_safe_until: { $gt: service.now() } };
  const plan = await service.db
    .collection('devices')
    .find({ $and: [account, late] })
    .explain('queryPlanner');
  const text = JSON.stringify(plan.queryPlanner.winningPlan);
  expect(text).toContain('"stage":"IXSCAN"');
  expect(text).toContain('stream_safe_until');
  expect(text).not.toContain('COLLSCAN');
});
