import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeAll, expect, it } from '@jest/globals';
import type { Download, Page, Request } from 'playwright-core';
import { mockPlacedDevices } from '../../../scripts/support/browser.js';
import { describeInBrowser, expectSoon, findAxeViolations, useConsole, waitForView } from '../../support/browser.js';
import { waitUntil } from '../../support/process.js';

async function readDownload(download: Download): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

/** Sum of the shifts that no click or key has caused; see https://web.dev/articles/cls. */
const layout_shift = `new Promise((resolve) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) sum += value;
  }).observe({ type: 'layout-shift', buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
})`;

/** Half of what counts as good. */
const max_layout_shift = 0.05;

const isFeed = ({ pathname }: URL) => pathname.endsWith('/live/');
/** Requests of a view itself: not for files of the console, not to sign in, no feeds. */
const isOfView = (url: URL) => !/^\/(?:console|self|openapi\.json)\b/.test(url.pathname) && !isFeed(url);

/**
 * Loads a page again; answers to a path come when all others have been drawn.
 * @returns paths whose answers the view draws
 */
async function reloadHolding(page: Page, held_path?: string): Promise<string[]> {
  const paths = new Set<string>();
  const pending = new Set<Request>();
  const release = new AbortController();
  const add = (request: Request) => {
    if (!isFeed(new URL(request.url()))) pending.add(request);
  };
  const settle = (request: Request) => void pending.delete(request);
  const drawAll = async () => {
    do await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))');
    while (pending.size > 0);
  };
  await page.route(isOfView, async (route) => {
    const { pathname } = new URL(route.request().url());
    paths.add(pathname);
    if (pathname === held_path && !release.signal.aborted) {
      settle(route.request());
      await once(release.signal, 'abort');
    }
    await route.continue();
  });
  page.on('request', add).on('requestfinished', settle).on('requestfailed', settle);
  await page.reload({ waitUntil: 'commit' });
  await page.waitForSelector('#main');
  await drawAll();
  release.abort();
  await waitForView(page);
  await drawAll();
  page.off('request', add).off('requestfinished', settle).off('requestfailed', settle);
  await page.unrouteAll();
  return [...paths];
}

describeInBrowser('a view', () => {
  const ctx = useConsole();
  const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
  /** Presses what the menu above a list has. */
  const act = async (page: Page, name: string) => {
    await page.locator('summary', { hasText: 'Actions' }).click();
    const [link, button] = (['link', 'button'] as const).map((role) => page.locator('main').getByRole(role, { name }));
    await link?.or(button ?? link).click();
  };
  const show = async (path: string) => (await ctx.service.send('GET', path)).body;

  beforeAll(async () => {
    const place = { id_group: 'Hall@demo', lon: 2, lat: 48 };
    const measures = [{ path: 'bar', unit: 'bar', decimals: 1 }];
    await ctx.importObjects([
      { resource: 'project', name: 'Plant', id_customer: 'c-1' },
      { resource: 'service', name: 'Cooling', id_project: 'Plant@demo' },
      { resource: 'group', name: 'Hall', id_service: 'Cooling@demo' },
      { resource: 'model', name: 'Tank', measures },
      { resource: 'device', name: 'Pump', type: 'pump', id_model: 'Tank@demo', ...place },
      { resource: 'device', name: 'Fan', type: 'fan', ...place },
      { resource: 'device', name: 'Silent', type: 'pump', ...place },
    ]);
    for (const [path, streams] of [
      [
        '/streams/',
        [
          { device: 'Pump@demo', data: { bar: 1, note: 'calm' } },
          { device: 'Fan@demo', data: { rpm: 900 } },
        ],
      ],
      ['/status/', [{ device: 'Fan@demo', data: { battery: 90 } }]],
    ] as const)
      expect((await ctx.service.send('POST', path, streams)).status).toBe(200);
    // two steps of the one, one of the other; the overview asks again after a minute only
    await waitUntil(async () => {
      const { total_documents } = await show('/events/?type=device.status_changed&max=1');
      return total_documents === 3;
    });
  });

  it('the overview shows the devices of each status, and which are late', async () => {
    const page = await ctx.open('');
    const tile = (status: string) =>
      page
        .getByRole('list', { name: 'Devices by status' })
        .getByRole('listitem')
        .filter({ has: page.getByText(status, { exact: true }) });
    await tile('OK').getByText('1', { exact: true }).waitFor();
    // Pump sends data, and has never sent a status
    await tile('OK, sends no status').getByText('1', { exact: true }).waitFor();
    await tile('Status late').getByText('0', { exact: true }).waitFor();
    const badges = `document.querySelectorAll('[aria-label="Devices by status"] .badge')`;
    const colours = await page.evaluate(`[...${badges}].map((badge) => getComputedStyle(badge).color)`);
    const [good, dataOnly, bad] = colours as string[];
    expect(dataOnly).toBe(good);
    expect(bad).not.toBe(good);
    await tile('Disconnected').getByText('1', { exact: true }).waitFor();
    await tile('Data late').getByText('0', { exact: true }).waitFor();
    await tile('Disconnected').getByTitle('sent neither data nor a status in time').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    const later = await ctx.openWithClock('');
    await waitForView(later);
    await later.clock.fastForward(3 * 86_400_000);
    const late = later.getByRole('region', { name: 'Late devices' });
    await late.getByRole('row', { name: /^Pump OK, sends no status Hall 2 days ago 1\.0 bar 3 days ago$/ }).waitFor();
    // the numbers of the tiles are those of the lists they lead to
    await tile('Disconnected').getByRole('link').click();
    await page.getByRole('link', { name: 'Silent', exact: true }).waitFor();
    await expectSoon(() => page.locator('tbody tr').count(), 1);
    await ctx.show('groups/Hall%40demo');
    await page.getByRole('row', { name: /^Pump OK, sends no status / }).waitFor();
    // its events use the same words
    await ctx.show('devices/Pump%40demo?tab=history');
    await page.getByRole('row', { name: 'Disconnected → OK, sends no status' }).waitFor();
    // an event alone does not say whether the device has ever sent a status
    await ctx.show('events?resource=device');
    await page.getByRole('row', { name: 'Disconnected → Sends data, no status' }).first().waitFor();
  });

  it('the overview takes at most 160 KB before the map, which comes last', async () => {
    const page = await ctx.openNewTab('');
    const isComplete = page.getByText('3 devices with a place');
    await isComplete.waitFor();
    const network = await page.context().newCDPSession(page);
    await network.send('Network.enable');
    await network.send('Network.setCacheDisabled', { cacheDisabled: true });
    const [taken, ofMap]: [number[], string[]] = [[], []];
    network.on('Network.requestWillBeSent', ({ requestId, request: { url } }) => {
      if (/placed-devices|countries|id_developer%2C(?:alarms|.*lon)/.test(url)) ofMap.push(requestId);
    });
    network.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
      if (!ofMap.includes(requestId)) taken.push(encodedDataLength);
    });
    await page.reload();
    await isComplete.waitFor();
    const taken_bytes = taken.reduce((sum, bytes) => sum + bytes, 0);
    expect(taken_bytes).toBeGreaterThan(100_000);
    expect(taken_bytes).toBeLessThan(160_000);
  });

  it('there are twelve places, seven tabs and three buttons over a list, and earlier addresses lead to them', async () => {
    const page = await ctx.open('devices');
    await waitForView(page);
    await expectSoon(
      () => page.getByRole('navigation', { name: 'Views' }).getByRole('link').allInnerTexts(),
      [
        ...['Overview', 'Hierarchy', 'Devices', 'Map', 'Models', 'Configuration files', 'Alarms', 'Events', 'Webhooks'],
        ...['MQTT connections', 'Linked storage', 'API keys'],
      ],
    );
    const over = page.locator('.page-head .row > *, .list-head > details > summary');
    await expectSoon(() => over.allInnerTexts(), ['Actions', 'New device', 'View']);
    const tabs = page.getByRole('navigation', { name: 'Parts of this page' });
    const shown = tabs.locator('[aria-current=page]');
    for (const [former, tab] of [
      ['mqtt', 'Connect'],
      ['commands', 'State and commands'],
      ['alarms', 'Alarms and events'],
      ['danger', 'Edit'],
    ]) {
      await ctx.show(`devices/Fan%40demo?tab=${former}`);
      await expectSoon(() => shown.textContent(), tab);
    }
    await expectSoon(() => tabs.getByRole('button').count(), 7);
    await ctx.show('alarmrules');
    const parts = page.getByRole('navigation', { name: 'Parts of this view' });
    await expectSoon(() => parts.getByRole('link').allInnerTexts(), ['Alarms', 'Alarm rules']);
    expect(await findAxeViolations(page)).toEqual([]);
  });

  it('the overview sends few requests, each of them once, and costs little when it is left open', async () => {
    const sent: Request[] = [];
    const page = await ctx.openWithClock('about');
    await waitForView(page);
    page.on('request', (request) => {
      // the files of the map may come at any time, once
      if (!request.url().includes('/console/')) sent.push(request);
    });
    await page.getByRole('link', { name: 'Overview' }).click();
    await page.getByText('streams in the last minute').waitFor();
    await waitForView(page);
    const addresses = () => sent.map((request) => request.url());
    expect(new Set(addresses()).size).toBe(addresses().length);
    expect(addresses().length).toBeLessThan(20);
    // as long as nothing happens, only the events are read again, and what counts a minute
    sent.length = 0;
    for (let round = 0; round < 4; round++) {
      const read = page.waitForResponse((response) => response.url().includes('/events/?max='));
      await page.clock.fastForward(30_000);
      await (await read).finished();
    }
    expect(addresses().length).toBeLessThanOrEqual(30);
    // neither what was read of the log of the day, nor places while no device changes
    const again = addresses().filter((url) => /created&after=0{18}|&fields=[^&]*lon/.test(decodeURIComponent(url)));
    expect(again).toEqual([]);
    const sizes = await Promise.all(sent.map(async (request) => (await request.sizes()).responseBodySize));
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(40_000);
  });

  it('the overview says among how many devices it has looked for places, and counts no streams by reading them', async () => {
    const sent: string[] = [];
    const page = await ctx.openNewTab('about');
    await mockPlacedDevices(page, 10_105);
    await page.route('**/streams/rate/', (route) =>
      route.fulfill({ json: { at_from: 1_700_000_040, counts: [...Array(59).fill(40), 1234] } }),
    );
    page.on('request', (request) => void sent.push(new URL(request.url()).pathname));
    await page.getByRole('link', { name: 'Overview' }).click();
    await page.getByText('5,000 devices with a place, among the first 5,000 of 10,105').waitFor();
    const tile = page.getByRole('listitem').filter({ hasText: 'streams in the last minute' });
    await tile.getByText('1,234', { exact: true }).waitFor();
    await tile.getByRole('img', { name: 'Last hour: up to 1,234 a minute' }).waitFor();
    expect(sent).not.toContain('/streams/');
    expect(await findAxeViolations(page)).toEqual([]);
  });

  it('a preview of a change shows that a device keeps the properties of its model', async () => {
    const model = { name: 'Typed', properties: { range: 40, maker: 'x' } };
    expect((await ctx.service.send('POST', '/models/', model)).body.code).toBe(2001);
    const device = { name: 'Typed pump', type: 'typed', id_group: 'Hall@demo', id_model: 'Typed@demo' };
    expect((await ctx.service.send('POST', '/devices/', { ...device, properties: { own: 1 } })).body.code).toBe(2001);
    const page = await ctx.open('devices?type=typed');
    await act(page, 'Change all…');
    await page.getByRole('textbox', { name: 'Properties' }).fill('{"maker": "y"}');
    await press(page, 'Preview');
    await page.getByText('→ {"range":40,"maker":"y"}').waitFor();
    expect((await ctx.service.send('DELETE', '/devices/Typed%20pump@demo/')).body.code).toBe(2004);
  });

  it('the hierarchy asks once for the numbers of each branch, and shows the object that is chosen', async () => {
    const sent: string[] = [];
    const page = await ctx.open('about');
    page.on('request', (request) => void sent.push(request.url()));
    await page.getByRole('link', { name: 'Hierarchy' }).click();
    for (const name of ['Plant', 'Cooling']) await press(page, `Contents of ${name}`);
    const tree = page.locator('.tree');
    await tree.getByTitle('Disconnected: 1 device').nth(2).waitFor();
    await tree.getByTitle('OK, sends no status: 1 device').nth(2).waitFor();
    const counts = sent.filter((url) => url.includes('/counts/'));
    expect(new Set(counts).size).toBe(counts.length);
    // of devices, of those that have sent a status, and of alarms, for projects, services and groups each
    expect(counts.length).toBe(9);
    await tree.getByRole('link', { name: 'Hall' }).click();
    await page
      .getByRole('list', { name: 'Devices below by status' })
      .getByRole('link', { name: '1 Disconnected' })
      .waitFor();
    await page.getByText('3 devices with a place').waitFor();
    const room_px = await page.evaluate(`(() => {
      const map = document.querySelector('.map-preview');
      const bottomOf = (element) => element.getBoundingClientRect().bottom;
      return bottomOf(map.closest('.panel')) - bottomOf(map.lastElementChild);
    })()`);
    expect(room_px).toBeGreaterThan(0);
    await page.getByRole('region', { name: 'Devices' }).getByRole('link', { name: 'Silent' }).waitFor();
    expect(new URL(page.url()).searchParams.get('at')).toBe('groups/Hall@demo');
  });

  it.each([
    ['overview', ''],
    ['list', 'devices'],
    ['device', 'devices/Fan%40demo'],
    ['hierarchy', 'hierarchy'],
    ['events', 'events'],
  ])('%s: nothing moves while it is being read, whichever answer comes last', async (_name, path) => {
    const page = await ctx.openNewTab(path);
    await waitForView(page);
    const shifts: [string, number][] = [];
    for (const held_path of await reloadHolding(page)) {
      await reloadHolding(page, held_path);
      shifts.push([held_path, Number(await page.evaluate(layout_shift))]);
    }
    expect(shifts.filter(([, shift]) => shift > max_layout_shift)).toEqual([]);
  });

  it('charts: one for each unit of the model, whole labels, one zone that is named, counters off, zoom, events', async () => {
    const measures = [
      { path: 'air.pa', name: 'Pressure', unit: 'Pa' },
      { path: '/air/sea', name: 'At sea level', unit: 'Pa' },
      { path: 'warmth', unit: '°C', decimals: 1, min: -40, max: 60 },
    ];
    expect((await ctx.service.send('POST', '/models/', { name: 'Station', measures })).body.code).toBe(2001);
    const device = { name: 'Barometer', type: 'sensor', id_group: 'Hall@demo', time_zone: 'Asia/Tokyo' };
    const body = { ...device, id_model: 'Station@demo' };
    expect((await ctx.service.send('POST', '/devices/', body)).body.code).toBe(2001);
    const now_s = Math.floor(Date.now() / 1000);
    const streams = Array.from({ length: 10 }, (_, index) => ({
      device: 'Barometer@demo',
      at: now_s - 7200 - index * 600,
      data: { air: { pa: 101_150 - (index % 3), sea: 101_300 }, warmth: 20, uptime: 10_000 - index * 600 },
    }));
    expect((await ctx.service.send('POST', '/streams/', streams)).status).toBe(200);
    const page = await ctx.open('devices/Barometer%40demo?zone=device');
    const charts = page.getByRole('img', { name: /^Measurements of Barometer/ });
    await charts.nth(1).waitFor();
    // ten streams of the last four hours: six hours hold them
    const labels = () => charts.evaluateAll((all) => all.map((chart) => chart.getAttribute('aria-label')));
    await expectSoon(labels, [
      'Measurements of Barometer: 10 points of Pressure, At sea level',
      'Measurements of Barometer: 10 points of warmth',
    ]);
    await expectSoon(() => page.getByRole('checkbox', { name: 'uptime' }).isChecked(), false);
    await page.getByText('20.0', { exact: true }).waitFor();
    await page.getByText('101,150', { exact: true }).waitFor();
    const room = await page.evaluate(`(() => {
      const context = document.createElement('canvas').getContext('2d');
      context.font = '12px sans-serif';
      const axis = document.querySelectorAll('.u-axis')[1];
      return axis.getBoundingClientRect().width - context.measureText('101,150').width;
    })()`);
    expect(room).toBeGreaterThan(0);
    const events = page.getByText(/^\d events? in this time$/);
    await events.click();
    await page.getByRole('listitem').filter({ hasText: 'Disconnected → OK, sends no status' }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    const over = page.locator('.u-over').first();
    await over.hover();
    await page.getByText(/\(Asia\/Tokyo\)$/).waitFor();
    await page.getByLabel('Time zone').selectOption({ index: 0 });
    await over.hover({ position: { x: 40, y: 40 } });
    await page.getByText(/\(Asia\/Tokyo\)$/).waitFor({ state: 'detached' });
    expect(new URL(page.url()).searchParams.has('zone')).toBe(false);
    await over.dragTo(over, { sourcePosition: { x: 100, y: 40 }, targetPosition: { x: 300, y: 40 } });
    await page.getByLabel('From', { exact: true }).waitFor();
    const zoomed = Object.fromEntries(new URL(page.url()).searchParams);
    expect(Number(zoomed.to) - Number(zoomed.from)).toBeLessThan(6 * 3600);
    await press(page, 'Zoom out');
    await page.getByLabel('From', { exact: true }).waitFor({ state: 'detached' });
    const box = await over.boundingBox();
    const point = (x: number) => ({ x: (box?.x ?? 0) + x, y: (box?.y ?? 0) + 40 });
    const devtools = await page.context().newCDPSession(page);
    const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', touchPoints: { x: number; y: number }[]) =>
      devtools.send('Input.dispatchTouchEvent', { type, touchPoints });
    await touch('touchStart', [point(100)]);
    for (const x of [150, 220, 300]) await touch('touchMove', [point(x)]);
    await touch('touchEnd', []);
    await page.getByLabel('From', { exact: true }).waitFor();
    await devtools.detach();
  });

  it('streams of a device have a column for each measure, or each value, also in an export', async () => {
    const page = await ctx.open('devices/Barometer%40demo?tab=streams');
    await page
      .getByRole('row', { name: / str 101,149 Pa 101,300 Pa 20\.0 °C / })
      .first()
      .waitFor();
    const heads = page.locator('thead th');
    await expectSoon(
      () => heads.allInnerTexts(),
      ['Time ↓', 'Kind of stream', 'Pressure', 'At sea level', 'warmth', 'Created'],
    );
    await page.locator('summary', { hasText: 'View' }).click();
    const [download] = await Promise.all([page.waitForEvent('download'), press(page, 'Export CSV')]);
    const [head, first] = (await readDownload(download)).split('\r\n');
    expect(head).toBe('id_developer,at,_t,data.air.pa,data.air.sea,data.warmth,created_at');
    expect(first).toMatch(/@demo,\d+,str,101150,101300,20,\d+$/);
    expect(await findAxeViolations(page)).toEqual([]);
    await ctx.show('devices/Fan%40demo?tab=streams');
    await page.getByRole('row', { name: / str 900 / }).waitFor();
    const kept = page.getByText(/^Streams are kept/);
    await expectSoon(
      () => kept.textContent(),
      'Streams are kept as long as the service is set to, hourly summaries as long as the service is set to.',
    );
    await ctx.service.send('PUT', '/devices/Fan@demo/', { stream_retention_days: 30 });
    await kept.filter({ hasText: 'for 30 days' }).waitFor();
  });

  it('measures of a model are rows of a form', async () => {
    expect((await ctx.service.send('POST', '/models/', { name: 'Gauge' })).body.code).toBe(2001);
    const page = await ctx.open('models/Gauge%40demo?tab=edit');
    await press(page, 'Add measure');
    const measure = page.getByRole('group', { name: 'Measure 1' });
    await measure.getByLabel('Path (required)').fill('bar');
    await measure.getByLabel('Max', { exact: true }).fill('12.50');
    await press(page, 'Save');
    await page.getByText('Saved Gauge.').waitFor();
    expect((await show('/models/Gauge@demo/')).measures).toEqual([{ path: 'bar', max: 12.5 }]);
    const row = page.getByRole('region', { name: 'Measures' }).getByRole('row').nth(1);
    const stated = async () => (await row.getByRole('cell').allInnerTexts()).filter((text) => text !== '–');
    await expectSoon(stated, ['bar', '12.5']);
    expect(await findAxeViolations(page)).toEqual([]);
  });

  it('events: a change appears in the live tail and in the history of its object', async () => {
    const page = await ctx.open('events');
    await waitForView(page);
    await press(page, 'Live');
    await page.getByText('Waiting for the next event…').waitFor();
    expect((await ctx.service.send('PUT', '/devices/Pump@demo/', { firmware: '2.0' })).body.code).toBe(2005);
    const live = page.getByRole('region', { name: 'Live events' });
    await live.getByRole('row', { name: /device\.updated Pump/ }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await live.getByRole('link', { name: 'Pump' }).click();
    await press(page, 'Alarms and events');
    await page.getByRole('row', { name: /device\.updated admin/ }).waitFor();
  });

  it('keys: one is limited on the page of an object, and what it may not is not offered', async () => {
    const page = await ctx.open('groups/Hall%40demo');
    await press(page, 'New key for this group');
    const form = page.getByRole('dialog', { name: 'New key for this group' });
    await form.getByLabel('Username (required)').fill('hal');
    await form.getByLabel('Scope (required)').selectOption('write');
    expect(await findAxeViolations(page)).toEqual([]);
    await form.getByRole('button', { name: 'Create' }).click();
    const secret = page.getByRole('dialog', { name: 'The new key' });
    const key = (await secret.locator('pre').textContent()) ?? '';
    await secret.getByRole('button', { name: 'Close' }).click();
    await ctx.show('apikeys');
    await page.getByRole('row', { name: /^hal write, only Hall / }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    const limited = await ctx.openNewTab('devices', key);
    const refused: string[] = [];
    limited.on('response', (answer) => {
      if (answer.status() >= 400) refused.push(`${answer.status()} ${answer.url()}`);
    });
    await limited.getByRole('link', { name: 'New device' }).waitFor();
    await limited.getByRole('link', { name: 'Pump', exact: true }).waitFor();
    const views = limited.getByRole('navigation', { name: 'Views' });
    for (const name of ['Projects', 'Services', 'Streams'])
      expect(await views.getByRole('link', { name }).count()).toBe(0);
    await views.getByRole('link', { name: 'Models' }).click();
    await limited.getByRole('heading', { level: 1, name: 'Models' }).waitFor();
    await waitForView(limited);
    expect(await limited.getByRole('link', { name: 'New model' }).count()).toBe(0);
    await views.getByRole('link', { name: 'Hierarchy' }).click();
    await limited.getByRole('link', { name: 'Groups' }).click();
    await limited.locator('summary', { hasText: 'Actions' }).click();
    await limited.getByRole('button', { name: 'Change all…' }).waitFor();
    expect(await limited.getByRole('link', { name: 'New group' }).count()).toBe(0);
    expect(await limited.getByRole('button', { name: 'Delete all…' }).count()).toBe(0);
    await views.getByRole('link', { name: 'Hierarchy' }).click();
    await limited.getByRole('button', { name: 'Contents of Hall' }).waitFor();
    await limited.keyboard.press('Control+k');
    await limited.getByRole('combobox', { name: 'Name or identifier' }).fill('pum');
    await limited.getByRole('option', { name: 'Pump device' }).click();
    const trail = limited.getByRole('navigation', { name: 'Breadcrumbs' });
    await trail.getByText('Cooling').waitFor();
    await expectSoon(() => trail.getByRole('link').allTextContents(), ['Devices', 'Hall']);
    await trail.getByRole('link', { name: 'Hall' }).click();
    await press(limited, 'Edit');
    await limited.getByLabel('Description').waitFor();
    expect(await limited.getByLabel('Service').count()).toBe(0);
    expect(await limited.getByRole('button', { name: 'Delete…' }).count()).toBe(0);
    await views.getByRole('link', { name: 'Overview' }).click();
    await limited.getByRole('list', { name: 'Devices by status' }).waitFor();
    await waitForView(limited);
    expect(refused).toEqual([]);
  });

  it('webhooks: a test reaches the receiver', async () => {
    const page = await ctx.open('webhooks');
    await waitForView(page);
    const receiver = createServer((_request, response) => response.end()).listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    const received = once(receiver, 'request');
    await press(page, 'New webhook');
    const form = page.getByRole('dialog', { name: 'New webhook' });
    await form.getByLabel('Name (required)').fill('Receiver');
    await form.getByLabel('Address (required)').fill(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`);
    for (const kind of ['Alarms', 'New devices', 'Deleted devices'])
      await form.getByLabel(kind, { exact: true }).click();
    await form.getByLabel('Other types of events').fill('model.created');
    await form.getByRole('button', { name: 'Create' }).click();
    const secret = page.getByRole('dialog', { name: 'Signing secret' });
    expect(await secret.locator('pre').textContent()).toMatch(/^whsec_/);
    await secret.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('link', { name: 'Receiver', exact: true }).click();
    await press(page, 'Send a test');
    await page.getByText('Test: answered with status 200').waitFor();
    expect((await received)[0].headers['webhook-id']).toBeDefined();
    const row = page.getByRole('row', { name: /webhook\.test 1 200/ });
    await row.waitFor();
    expect(await row.getByRole('button', { name: /Retry/ }).count()).toBe(0);
    const device = { name: 'Told', type: 'x', id_group: 'Hall@demo' };
    expect((await ctx.service.send('POST', '/devices/', device)).body.code).toBe(2001);
    const sent = page.getByRole('row', { name: /device\.created 1 200/ });
    await sent.getByRole('button', { name: 'Show' }).click();
    expect((await show('/webhooks/Receiver@demo/')).types).toEqual([
      ...['device.created', 'device.deleted', 'model.created'],
    ]);
    const shown = page.getByRole('dialog', { name: 'device.created' });
    await shown.getByText('About: Told').waitFor();
    await shown.getByRole('link', { name: 'Told' }).waitFor();
    await shown.getByText('"type": "device.created"').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await page.keyboard.press('Escape');
    expect((await ctx.service.send('DELETE', '/devices/Told@demo/')).body.code).toBe(2004);
    receiver.close();
  });

  it('webhooks to people: the form begins with the place, shows the text, and has no secret', async () => {
    const page = await ctx.open('webhooks');
    await waitForView(page);
    const receiver = createServer((request, response) => response.writeHead(request.url === '/t' ? 200 : 404).end());
    await once(receiver.listen(0, '127.0.0.1'), 'listening');
    const received = once(receiver, 'request');
    await press(page, 'New webhook');
    const form = page.getByRole('dialog', { name: 'New webhook' });
    await form.getByLabel('Where to').selectOption('ntfy');
    for (const kind of ['Alarms', 'Status of devices']) await form.getByLabel(kind, { exact: true }).click();
    await form.getByText(/^Device [a-z ]+: \w+\s+Device: /).waitFor();
    await form.getByLabel('Name (required)').fill('Shift');
    await form.getByLabel('Address (required)').fill(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/t`);
    expect(await findAxeViolations(page)).toEqual([]);
    await form.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('link', { name: 'Shift', exact: true }).click();
    expect(await page.getByRole('dialog').count()).toBe(0);
    expect(await show('/webhooks/Shift%40demo/')).toMatchObject({
      ...{ format: 'ntfy', types: ['device.status_changed'], digest_s: 60 },
    });
    await press(page, 'Send a test');
    await page.getByText('Test: answered with status 200').waitFor();
    expect((await received)[0].headers.title).toBe('Test of webhook: Shift');
    expect(await page.getByRole('button', { name: 'New secret…' }).count()).toBe(0);
    await page.getByLabel('Where to').selectOption('A program');
    await press(page, 'Save');
    const secret = page.getByRole('dialog', { name: 'Signing secret' });
    expect(await secret.locator('pre').textContent()).toMatch(/^whsec_/);
    receiver.close();
  });

  it('configs: two versions are compared from the older to the newer, whatever the order of the clicks', async () => {
    for (const [version, text] of [
      ['1', 'rate=1'],
      ['2', 'rate=2'],
    ] as const) {
      const body = { name: 'main.cfg', version, file: Buffer.from(text).toString('base64') };
      expect((await ctx.service.send('POST', '/devices/Pump%40demo/deviceconfigs/', body)).status).toBe(201);
      // times are whole seconds
      const second = Math.floor(Date.now() / 1000);
      await waitUntil(() => Math.floor(Date.now() / 1000) > second);
    }
    const page = await ctx.open('devices/Pump%40demo?tab=configs');
    await waitForView(page);
    const boxes = page.locator('tbody').getByRole('checkbox');
    for (const box of [boxes.first(), boxes.last()]) await box.click();
    await press(page, 'Compare two');
    const dialog = page.getByRole('dialog', { name: 'main.cfg 1 → main.cfg 2' });
    await dialog.getByText('− rate=1').waitFor();
    await dialog.getByText('+ rate=2').waitFor();
    await page.keyboard.press('Escape');
    await press(page, 'Make desired main.cfg 1');
    await page.getByRole('button', { name: 'Take back main.cfg 1' }).waitFor();
    expect((await show('/devices/Pump@demo/state/')).desired.configs['main.cfg']).toMatchObject({ version: '1' });
    await press(page, 'Take back main.cfg 1');
    await page.getByRole('button', { name: 'Make desired main.cfg 1' }).waitFor();
    expect((await show('/devices/Pump@demo/state/')).desired).not.toHaveProperty('configs');
  });

  it('state: both sides are compared, and an edit that is late loses neither side', async () => {
    const path = '/devices/Fan@demo/state/';
    const patch = async (side: string, body: object) =>
      expect((await ctx.service.send('PATCH', path + side, body)).body.code).toBe(2005);
    await patch('', { interval: 60, led: { on: true, level: 3 } });
    await patch('reported/', { interval: 30, rejected: { 'led.level': 'too bright' } });
    const page = await ctx.open('devices/Fan%40demo?tab=state');
    await page.getByRole('row', { name: 'interval 60 30 not reported yet' }).waitFor();
    await page.getByRole('row', { name: 'led.level 3 – rejected too bright' }).waitFor();
    await press(page, 'Edit desired state');
    const input = page.getByLabel('Desired');
    await input.fill('[1]');
    await press(page, 'Save');
    await page.getByText('must be a JSON object').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await input.fill('{"interval": 120, "led": {"on": true}}');
    await patch('', { interval: 90, mode: 'eco' });
    await press(page, 'Save');
    const dialog = page.getByRole('dialog', { name: 'Changed meanwhile' });
    await dialog.getByText('Mode: none → eco').waitFor();
    await dialog.getByRole('group', { name: 'Interval' }).getByText('Mine: 120').click();
    await press(page, 'Save this choice');
    await page.getByText('The desired state is saved.').waitFor();
    const { desired } = await show(path);
    expect(desired).toEqual({ interval: 120, mode: 'eco', led: { on: true } });
  });

  it('commands: one is sent and followed to its end, another is cancelled', async () => {
    const page = await ctx.openWithClock('devices/Fan%40demo?tab=commands');
    await page.getByText('No command yet.').waitFor();
    for (const [name, data] of [
      ['restart', '{"delay": 5}'],
      ['blink', ''],
    ] as const) {
      await page.getByLabel('Name (required)').fill(name);
      await page.getByRole('textbox', { name: 'Data' }).fill(data);
      await press(page, 'Send command');
      await page.getByRole('row', { name: new RegExp(`^${name} .*queued`) }).waitFor();
    }
    const [blink, restart] = (await show('/devices/Fan@demo/commands/')).result;
    expect([blink.name, restart.name, restart.data]).toEqual(['blink', 'restart', { delay: 5 }]);
    await press(page, 'Cancel blink');
    await page.getByRole('row', { name: /^blink .*cancelled/ }).waitFor();
    const answer = { status: 'done', data: { took: 2 } };
    const reply = await ctx.service.send('POST', `/devices/Fan@demo/commands/${restart.id}/result/`, answer);
    expect(reply.body.code).toBe(2005);
    await page.clock.fastForward(5000);
    await page.getByRole('row', { name: /^restart .*done {"took":2}/ }).waitFor();
    expect(await page.getByRole('button', { name: /^Cancel/ }).count()).toBe(0);
    expect(await findAxeViolations(page)).toEqual([]);
    expect((await show(`/devices/Fan@demo/commands/${blink.id}/`)).status).toBe('cancelled');
  });

  it('commands: one is sent to all that match, and followed until all have answered', async () => {
    const page = await ctx.open('devices?type=pump');
    await waitForView(page);
    await act(page, 'Send command to all…');
    const dialog = page.getByRole('dialog', { name: 'Send a command to all devices that match' });
    await dialog.getByLabel('Name (required)').fill('flush');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('2 devices get the command flush.').waitFor();
    expect((await show('/devices/Pump@demo/commands/')).total_documents).toBe(0);
    expect(await findAxeViolations(page)).toEqual([]);
    await dialog.getByLabel('Type the number (2) to confirm').fill('2');
    await dialog.getByRole('button', { name: 'Send' }).click();
    await dialog.getByText('0 of 2 devices answered').waitFor();
    for (const [device, status] of [
      ['Pump', 'done'],
      ['Silent', 'failed'],
    ] as const) {
      const [{ id, name }] = (await show(`/devices/${device}@demo/commands/`)).result;
      expect(name).toBe('flush');
      const reply = await ctx.service.send('POST', `/devices/${device}@demo/commands/${id}/result/`, { status });
      expect(reply.body.code).toBe(2005);
    }
    await dialog.getByText('2 of 2 devices answered').waitFor();
    await dialog.getByText('Failed: Silent').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
  });

  it('configs: the fleet shows who has which version, and each number leads to its devices', async () => {
    const file = Buffer.from('x').toString('base64');
    for (const [device, reported] of [
      ['Pump', { version: '2' }],
      ['Fan', { version: '1' }],
      ['Silent', { version: '2', error: 'bad checksum' }],
    ] as const) {
      const path = `/devices/${device}@demo`;
      for (const version of ['1', '2'])
        expect(
          (await ctx.service.send('POST', `${path}/deviceconfigs/`, { name: 'fleet.cfg', version, file })).status,
        ).toBe(201);
      const desired = await ctx.service.send('PUT', `${path}/deviceconfigs/fleet.cfg/desired/`, { version: '2' });
      const report = await ctx.service.send('PATCH', `${path}/state/reported/`, { configs: { 'fleet.cfg': reported } });
      expect([desired.body.code, report.body.code]).toEqual([2005, 2005]);
    }
    const page = await ctx.openWithClock('groups/Hall%40demo');
    await page.getByRole('link', { name: 'Configuration files' }).last().click();
    await page.getByRole('heading', { level: 1, name: 'Configuration files' }).waitFor();
    const rowOf = (name: string) => page.getByRole('row', { name }).getByRole('cell');
    await page.getByRole('row', { name: /^fleet\.cfg 2 / }).waitFor();
    await waitForView(page);
    expect(await findAxeViolations(page)).toEqual([]);
    const cells = async () =>
      (await rowOf('fleet.cfg 2').allInnerTexts()).slice(0, 6).map((text) => text.split(/\s/)[0]);
    await expectSoon(cells, ['fleet.cfg', '2', '1', '1', '1', '–']);
    for (const [link, device] of [
      ['1 device: fleet.cfg 2 applied', 'Pump'],
      ['1 device: fleet.cfg 2 pending', 'Fan'],
      ['1 device: fleet.cfg 2 refused', 'Silent'],
      ['1 device: fleet.cfg 2, reported 1', 'Fan'],
    ] as const) {
      await page.getByRole('link', { name: link }).click();
      await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
      await page.locator('tbody').getByRole('link', { name: device, exact: true }).waitFor();
      await expectSoon(() => page.locator('tbody').getByRole('row').count(), 1);
      await page.goBack();
    }
    const report = { configs: { 'fleet.cfg': { version: '2' } } };
    expect((await ctx.service.send('PATCH', '/devices/Fan@demo/state/reported/', report)).body.code).toBe(2005);
    await page.clock.fastForward(10_000);
    await page.getByRole('link', { name: '2 devices: fleet.cfg 2 applied' }).waitFor();
    const tab = await ctx.open('devices/Fan%40demo?tab=configs');
    await tab.getByRole('link', { name: 'Fleet fleet.cfg' }).first().click();
    await tab.getByRole('row', { name: /^fleet\.cfg 2 / }).waitFor();
  });

  it('configs: a file is given to many from a list, followed, and given again to those that refused it', async () => {
    const page = await ctx.openWithClock('devices?type=pump');
    await waitForView(page);
    await act(page, 'Give file to all…');
    const dialog = page.getByRole('dialog', { name: 'Give a file to all devices that match' });
    await dialog.getByLabel('Version').fill('7');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('choose a file').waitFor();
    const file = { name: 'valve.cfg', mimeType: 'text/plain', buffer: Buffer.from('open') };
    await page.setInputFiles('#file-for-many', file);
    await dialog.getByRole('button', { name: 'Preview' }).click();
    const gift = '2 devices shall have version 7 of valve.cfg, which is stored for those that do not have it.';
    await dialog.getByText(gift).waitFor();
    await dialog.getByRole('row', { name: 'Silent' }).waitFor();
    expect((await show('/devices/Silent@demo/deviceconfigs/?name=valve.cfg')).total_documents).toBe(0);
    expect(await findAxeViolations(page)).toEqual([]);
    await dialog.getByLabel('Type the number (2) to confirm').fill('2');
    await dialog.getByRole('button', { name: 'Give' }).click();
    await page.getByRole('link', { name: '2 devices: valve.cfg 7 pending' }).waitFor();
    expect(Object.fromEntries(new URL(page.url()).searchParams)).toEqual({ type: 'pump', config: 'valve.cfg' });
    for (const [device, reported] of [
      ['Pump', { version: '7' }],
      ['Silent', { version: '7', error: 'bad checksum' }],
    ] as const) {
      const report = { configs: { 'valve.cfg': reported } };
      const { body } = await ctx.service.send('PATCH', `/devices/${device}@demo/state/reported/`, report);
      expect(body.code).toBe(2005);
    }
    await page.clock.fastForward(10_000);
    await page.getByRole('link', { name: '1 device: valve.cfg 7 refused' }).waitFor();
    const { desired_version } = await show('/devices/Silent@demo/state/');
    await press(page, 'Repeat… valve.cfg 7');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('1 device shall have version 7 of valve.cfg.').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await dialog.getByLabel('Type the number (1) to confirm').fill('1');
    await dialog.getByRole('button', { name: 'Give' }).click();
    await dialog.waitFor({ state: 'detached' });
    await page.getByText('1 device shall have version 7 of valve.cfg.').waitFor();
    expect((await show('/devices/Silent@demo/state/')).desired_version).toBe(desired_version + 1);
  });

  it('import: a dry run names the wrong line, then the others are imported', async () => {
    const page = await ctx.open('import');
    await waitForView(page);
    const csv =
      'resource,name,id_customer,id_project\nproject,New,c-1,\nservice,Under,,New@demo\nservice,Lost,,None@demo\n';
    await page.setInputFiles('#import-file', { name: 'plant.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) });
    await press(page, 'Try');
    await page.getByRole('row', { name: '4 4003 {"id_project":"does not exist"}' }).waitFor();
    expect((await ctx.service.send('GET', '/projects/New@demo/')).status).toBe(404);
    expect(await findAxeViolations(page)).toEqual([]);
    const [failed] = await Promise.all([page.waitForEvent('download'), press(page, 'Download the 1 line that failed')]);
    expect(failed.suggestedFilename()).toBe('failed-plant.csv');
    expect(await readDownload(failed)).toBe('resource,name,id_customer,id_project\nservice,Lost,,None@demo\n');
    await press(page, 'Import');
    await page.getByText('What has happened').waitFor();
    await page.getByText('3 lines', { exact: true }).waitFor();
    expect(await show('/services/Under@demo/')).toMatchObject({ id_project: 'New@demo' });
  });

  it('import: the type is recognized by the columns, and can be changed', async () => {
    const page = await ctx.open('import');
    await waitForView(page);
    const type = page.getByLabel('Resource');
    const choose = (name: string, content: string) =>
      page.setInputFiles('#import-file', { name, mimeType: 'text/plain', buffer: Buffer.from(content) });
    await choose('a.csv', '\uFEFFtype;"name";id_group;networking.type\nfan;Fan 2;Hall@demo;wifi\n');
    await page.getByText('The columns are those of devices.').waitFor();
    await expectSoon(() => type.inputValue(), 'device');
    expect(await findAxeViolations(page)).toEqual([]);
    await choose('b.ndjson', '\n{"name":"Box","id_group":"Hall@demo"}\n');
    await page.getByText('The columns are those of assets.').waitFor();
    await expectSoon(() => type.inputValue(), 'asset');
    await choose('c.csv', 'colour\nred\n');
    await page.getByText('The columns are those of no type').waitFor();
    await choose('d.csv', 'name,description\nGate,any\n');
    await page.getByText('The columns are those of models.').waitFor();
    await type.selectOption('project');
    await press(page, 'Try');
    await page.getByRole('row', { name: '2 4003 {"id_customer":"is required"}' }).waitFor();
    await type.selectOption('model');
    await press(page, 'Try');
    await page.getByRole('button', { name: 'Import', exact: true }).and(page.locator(':enabled')).click();
    await page.getByText('What has happened').waitFor();
    await page.getByText('1 line', { exact: true }).waitFor();
    expect(await show('/models/Gate@demo/')).toMatchObject({ name: 'Gate', description: 'any' });
  });

  it('import: a file of any length, in pieces, with the right line numbers, and cancelled when asked', async () => {
    const lines = Array.from({ length: 11_000 }, (_, index) =>
      index === 10_344 ? '{"resource":"project","name":""}' : `{"resource":"model","name":"${index % 100}"}`,
    );
    const file = { name: 'long.ndjson', mimeType: 'application/x-ndjson', buffer: Buffer.from(lines.join('\n')) };
    const page = await ctx.open('import');
    await waitForView(page);
    await page.setInputFiles('#import-file', file);
    await press(page, 'Try');
    await page.getByText('The other 1,000 lines are tried when they are imported').waitFor({ timeout: 120_000 });
    await press(page, 'Import');
    const result = page.getByRole('row', { name: /^10,345 4003/ });
    await result.waitFor({ timeout: 120_000 });
    await page.getByText('11,000 lines', { exact: true }).waitFor({ timeout: 120_000 });
    // the second import is held, and cancelled
    await page.route(/\/import\//, () => undefined);
    await page.setInputFiles('#import-file', []);
    await page.setInputFiles('#import-file', file);
    await press(page, 'Try');
    await page.getByRole('progressbar', { name: '0 of 10,000 lines' }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await press(page, 'Cancel');
    await page.getByRole('progressbar').waitFor({ state: 'detached' });
  });

  it('changes of all that match: a preview, then the number confirms', async () => {
    const page = await ctx.open('devices');
    await waitForView(page);
    await page.locator('.main-filters').getByLabel('Type', { exact: true }).fill('fan');
    await page.keyboard.press('Enter');
    await page.getByText('1–1 of 1').waitFor();
    await act(page, 'Change all…');
    const dialog = page.getByRole('dialog', { name: 'Change all devices that match' });
    await dialog.getByLabel('Firmware').fill('9.9');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('1 device matches.').waitFor();
    await dialog.getByRole('row', { name: 'Fan – → 9.9' }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await dialog.getByLabel('Type the number (1) to confirm').fill('1');
    await dialog.getByRole('button', { name: 'Change' }).click();
    await page.getByText('Changed 1 device.').waitFor();
    expect(await show('/devices/Fan@demo/')).toMatchObject({ firmware: '9.9' });
  });

  it('search and export: what matches is listed and downloaded', async () => {
    const page = await ctx.open('devices?columns=name,status,latest.bar,updated_at');
    await waitForView(page);
    await page.getByRole('searchbox').fill('PUM');
    await page.getByRole('searchbox').press('Enter');
    await page.getByRole('link', { name: 'Fan', exact: true }).waitFor({ state: 'detached' });
    await page.locator('summary', { hasText: 'View' }).click();
    const [download] = await Promise.all([page.waitForEvent('download'), press(page, 'Export CSV')]);
    expect(download.suggestedFilename()).toBe('devices.csv');
    const lines = (await readDownload(download)).trim().split('\r\n');
    // the columns that are shown, with the last value
    expect(lines).toEqual([
      expect.stringMatching(/^id_developer,name,status,latest\.at,latest\.bar[^,]*,updated_at$/),
      expect.stringMatching(/^Pump@demo,Pump,no_status,\d+,1,\d+$/),
    ]);
  });

  it('the preview of a deletion counts what is below', async () => {
    const page = await ctx.open('projects/Plant%40demo?tab=danger');
    await press(page, 'Delete…');
    const dialog = page.getByRole('dialog', { name: 'Delete project' });
    await dialog
      .locator('.facts > div')
      .filter({ hasText: /^Devices4$/ })
      .waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
  });
});
