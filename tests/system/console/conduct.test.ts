import { beforeAll, expect, it } from '@jest/globals';
import type { Page, Route } from 'playwright-core';
import { mockPlacedDevices, panMap, readLongestFrame_ms, recordFrames } from '../../../scripts/support/browser.js';
import {
  describeInBrowser,
  expectSoon,
  findAxeViolations,
  findOverflows,
  useConsole,
  waitForView,
} from '../../support/browser.js';
import { waitUntil } from '../../support/process.js';

describeInBrowser('the console', () => {
  const ctx = useConsole();
  const focused = (page: Page) => page.evaluate('document.activeElement.tagName + "#" + document.activeElement.id');

  /** Makes a page believe that its tab is hidden: a headless browser hides none. */
  const setHidden = (page: Page, isHidden: boolean) =>
    page.evaluate(`{
      Object.defineProperty(document, 'hidden', { value: ${isHidden}, configurable: true });
      Object.defineProperty(document, 'visibilityState', { value: '${isHidden ? 'hidden' : 'visible'}', configurable: true });
      document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
    }`);

  beforeAll(() =>
    ctx.importObjects([
      { resource: 'project', name: 'Plant', id_customer: 'c-1' },
      { resource: 'service', name: 'Cooling', id_project: 'Plant@demo' },
      { resource: 'group', name: 'Hall', id_service: 'Cooling@demo' },
      { resource: 'device', name: 'Pump', type: 'pump', id_group: 'Hall@demo', lon: 10, lat: 50 },
      { resource: 'device', name: 'South', type: 'pump', id_group: 'Hall@demo', lon: 20, lat: -30 },
      { resource: 'device', name: 'Nowhere', type: 'pump', id_group: 'Hall@demo' },
    ]),
  );

  it('is used by keyboard: skip link, title after a navigation, menu, tabs, sort', async () => {
    const page = await ctx.open('');
    await waitForView(page);
    await page.locator('.skip').focus();
    await page.getByRole('link', { name: 'Skip to content' }).waitFor();
    await page.keyboard.press('Enter');
    await expectSoon(() => focused(page), 'MAIN#main');
    await page.getByRole('link', { name: 'Devices' }).first().focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await waitUntil(async () => String(await focused(page)).startsWith('H1'));
    await page.getByRole('button', { name: 'Name', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('columnheader', { name: 'Name' }).and(page.locator('[aria-sort=ascending]')).waitFor();
    await page.getByRole('link', { name: 'Pump', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Pump' }).waitFor();
    await page.getByRole('button', { name: 'Edit' }).focus();
    await page.keyboard.press('Space');
    await page.getByText('More fields').focus();
    await page.keyboard.press('Enter');
    await page.getByLabel('Firmware').waitFor();
  });

  it('opens its menu on a narrow screen, and closes it with the next view', async () => {
    const page = await ctx.open('', { width: 360 });
    await waitForView(page);
    const menu = page.getByRole('button', { name: 'Menu' });
    await menu.click();
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByRole('link', { name: 'Models' }).click();
    await page.getByRole('heading', { level: 1, name: 'Models' }).waitFor();
    await expectSoon(() => menu.getAttribute('aria-expanded'), 'false');
  });

  it('moves nothing by itself if the system asks for less motion', async () => {
    const page = await ctx.open('map', { reducedMotion: 'reduce' });
    await page.getByText('2 devices with a place').waitFor();
    expect(await page.locator('.leaflet-zoom-anim, .leaflet-fade-anim').count()).toBe(0);
    expect(await page.evaluate('document.getAnimations().length')).toBe(0);
  });

  it.each([
    [5031, 'the database does not answer', 'The database does not answer.'],
    [5033, 'overloaded', 'The service is overloaded.'],
  ])('says that requests fail with %s, repeats them, and goes on', async (code, message, words) => {
    const page = await ctx.open('');
    await waitForView(page);
    const attempts: Route[] = [];
    let hold = () => {};
    const isHeld = new Promise<void>((resolve) => {
      hold = resolve;
    });
    // two attempts fail, the third is not answered, so that nothing but the button ends this
    await page.route(/\/groups\/\?max=50/, (route) => {
      const count = attempts.push(route);
      if (count > 3) return route.continue();
      if (count === 3) return hold();
      return route.fulfill({ status: 503, headers: { 'Retry-After': '0' }, json: { code, message, details: {} } });
    });
    await page.getByRole('link', { name: 'Hierarchy' }).click();
    await page.getByRole('link', { name: 'Groups' }).click();
    const banner = page.getByRole('alert').filter({ hasText: `${words} Trying again…` });
    await isHeld;
    expect(await findAxeViolations(page)).toEqual([]);
    await banner.getByRole('button', { name: 'Try now' }).click();
    await page.getByRole('link', { name: 'Hall', exact: true }).waitFor();
    await banner.waitFor({ state: 'detached' });
    expect(attempts).toHaveLength(4);
  });

  it('keeps what was typed when saving fails, and saves it when asked again', async () => {
    const page = await ctx.open('devices/Pump%40demo?tab=edit');
    await page.getByText('More fields').click();
    await page.getByLabel('Firmware').fill('3.1');
    await page.route(/\/devices\/Pump%40demo\/$/, (route) =>
      route.request().method() === 'PUT'
        ? route.fulfill({ status: 503, json: { code: 5033, message: 'overloaded', details: {} } })
        : route.continue(),
    );
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('alert').getByText('The service is overloaded.').waitFor();
    await expectSoon(() => page.getByLabel('Firmware').inputValue(), '3.1');
    await page.unroute(/\/devices\/Pump%40demo\/$/);
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved Pump.').waitFor();
    expect((await ctx.service.send('GET', '/devices/Pump@demo/')).body).toMatchObject({ firmware: '3.1' });
  });

  it('follows the colours that are chosen, also in what is drawn', async () => {
    const page = await ctx.open('devices/Pump%40demo');
    await waitForView(page);
    await page.getByRole('combobox', { name: 'Colours' }).selectOption('Dark');
    await expectSoon(() => page.evaluate('getComputedStyle(document.documentElement).colorScheme'), 'dark');
    await page.reload();
    await waitForView(page);
    await expectSoon(() => page.evaluate('getComputedStyle(document.documentElement).colorScheme'), 'dark');
  });

  it('the description begins with requests and the operations, has the colours that are chosen and the key of the tab', async () => {
    const page = await ctx.open('about');
    await page.getByRole('combobox', { name: 'Colours' }).selectOption('Dark');
    await page.goto(`${ctx.service.url}/docs/`);
    const operation = page.locator('.opblock').first();
    await operation.waitFor();
    expect((await operation.boundingBox())?.y).toBeLessThan(900);
    await expectSoon(() => page.locator('details > summary').textContent(), 'About this interface');
    expect(await page.evaluate('document.documentElement.className')).toContain('dark-mode');
    await page.getByRole('heading', { level: 1 }).first().waitFor();
    const requests = page.getByRole('list').first().getByRole('button');
    await expectSoon(() => requests.count(), 5);
    for (let number = 0; number < 5; number++) {
      const answered = page.waitForResponse((response) => !response.url().includes('/docs/'));
      await requests.nth(number).click();
      expect((await answered).status()).toBe(200);
    }
    await requests.first().click();
    await page.getByText('"account": "demo"').waitFor();
    await page.getByRole('button', { name: 'authorization button locked' }).first().waitFor();
    expect(await page.evaluate('ui.authSelectors.authorized().toJS().apikey.value')).toBe(ctx.service.key);
    await page.getByRole('link', { name: 'Console' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
  });

  it('the map shows the last values of a device and leads to it, also by keyboard', async () => {
    const measured = { measures: [{ path: 'bar', name: 'Pressure', unit: 'bar' }] };
    expect((await ctx.service.send('POST', '/models/', { name: 'Tank', ...measured })).body.code).toBe(2001);
    const changes = { id_model: 'Tank@demo' };
    expect((await ctx.service.send('PUT', '/devices/South@demo/', changes)).body.code).toBe(2005);
    const stream = { data: { bar: 1.5, rpm: 900 } };
    expect((await ctx.service.send('POST', '/devices/South@demo/streams/', stream)).status).toBe(200);
    const page = await ctx.open('map');
    await page.getByText('2 devices with a place').waitFor();
    await page.getByRole('button', { name: 'South' }).hover();
    await page
      .getByRole('tooltip')
      .filter({ hasText: /^SouthPressure: 1\.5 barrpm: 900/ })
      .waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Pump' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Pump' }).waitFor();
  });

  it('the map turns a circle drawn by hand into a filter, which the list takes over', async () => {
    const page = await ctx.open('map');
    const marker = await page.getByRole('button', { name: 'Pump' }).boundingBox();
    const [x, y] = [(marker?.x ?? 0) + 12, (marker?.y ?? 0) + 12];
    await page.getByRole('button', { name: 'Draw a circle' }).click();
    // beside the marker, which would take the press
    await page.mouse.move(x + 20, y + 20);
    await page.mouse.down();
    await page.mouse.move(x + 60, y + 60, { steps: 5 });
    await page.mouse.up();
    await page.getByText('1 device with a place').waitFor();
    const search = Object.fromEntries(new URL(page.url()).searchParams);
    expect(Object.keys(search)).toEqual(['geo_lon', 'geo_lat', 'geo_distance']);
    expect(Number(search.geo_lat)).toBeGreaterThan(30);
    expect(Number(search.geo_lat)).toBeLessThan(50);
    await page.getByRole('link', { name: 'Open as a list' }).click();
    await page.getByRole('link', { name: 'Pump', exact: true }).waitFor();
    expect(await page.getByRole('link', { name: 'South', exact: true }).count()).toBe(0);
  });

  it('the map keeps its look while a circle is drawn, and is drawn on by touch', async () => {
    const page = await ctx.open('map');
    const box = await page.getByRole('button', { name: 'Pump' }).boundingBox();
    const point = (by: number) => ({ x: (box?.x ?? 0) + 12 + by, y: (box?.y ?? 0) + 12 + by });
    await page.getByRole('button', { name: 'Draw a circle' }).click();
    await expectSoon(() => page.locator('.map.leaflet-container').count(), 1);
    const devtools = await page.context().newCDPSession(page);
    const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', touchPoints: { x: number; y: number }[]) =>
      devtools.send('Input.dispatchTouchEvent', { type, touchPoints });
    await touch('touchStart', [point(20)]);
    for (const by of [30, 45, 60]) await touch('touchMove', [point(by)]);
    await touch('touchEnd', []);
    await page.getByText('1 device with a place').waitFor();
    await page.getByText(/^updated \d+ s ago$/).waitFor();
    expect(new URL(page.url()).searchParams.has('geo_distance')).toBe(true);
    await devtools.detach();
  });

  /** Opens the map with frames that wait in `held` once that is a list. */
  async function openMapWithHeldFrames(): Promise<Page> {
    const page = await ctx.openWithClock('map');
    await page.addInitScript(`{
      const [request, cancel] = [requestAnimationFrame, cancelAnimationFrame];
      window.held = undefined;
      window.drawn = 0;
      window.requestAnimationFrame = (frame) => held ? held.push(frame) : request(frame);
      window.cancelAnimationFrame = (id) => held?.[id - 1] ? (held[id - 1] = () => {}) : cancel(id);
    }`);
    await page.reload();
    await page.getByRole('button', { name: 'Pump' }).waitFor();
    return page;
  }

  /** Draws the frames that wait, and then those they asked for. @returns how many there were */
  const drawHeld = async (page: Page): Promise<number> => {
    // a frame keeps its place in the list, which is its number
    const draw = `{
      const waiting = held.slice(drawn);
      drawn = held.length;
      for (const frame of waiting) frame();
      waiting.length;
    }`;
    return Number(await page.evaluate(draw)) + Number(await page.evaluate(draw));
  };

  it('the map is left while it zooms, and its last frames come late', async () => {
    const page = await openMapWithHeldFrames();
    await page.evaluate(`new Promise((resolve) => {
      document.querySelector('.leaflet-control-zoom-in').click();
      const leave = () => {
        held = [];
        resolve(document.querySelector('.page-head a[href*="devices"]').click());
      };
      requestAnimationFrame(() => requestAnimationFrame(leave));
    })`);
    await page.getByRole('link', { name: 'Pump', exact: true }).waitFor();
    // longer than the zoom takes
    await page.clock.runFor(1000);
    expect(await drawHeld(page)).toBeGreaterThan(0);
  });

  it('the map is left after its size changed, and its last frames come late', async () => {
    const page = await openMapWithHeldFrames();
    await page.evaluate('held = []');
    await page.setViewportSize({ width: 1000, height: 700 });
    await waitUntil(async () => (await drawHeld(page)) > 0);
    await page.evaluate(`document.querySelector('.page-head a[href*="devices"]').click()`);
    await page.getByRole('link', { name: 'Pump', exact: true }).waitFor();
    // longer than Leaflet waits for further changes of the size
    await page.clock.runFor(1000);
    await drawHeld(page);
  });

  it('finds objects of all types as one types, by keyboard, the one visited last first', async () => {
    const page = await ctx.open('devices/South%40demo');
    await page.getByRole('heading', { level: 1, name: 'South' }).waitFor();
    await page.keyboard.press('Control+k');
    const dialog = page.getByRole('dialog', { name: 'Find any object' });
    const options = dialog.getByRole('option');
    await options.filter({ hasText: 'South' }).waitFor();
    await page.keyboard.type('l');
    // Plant, Cooling, Hall
    await options.nth(2).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await page.keyboard.type('x');
    await dialog.getByText('Nothing has this name or identifier.').waitFor();
    await dialog.getByRole('combobox').fill('@demo');
    await options.filter({ hasText: 'Pump' }).waitFor();
    await expectSoon(() => options.first().textContent(), 'Southdevice');
    await dialog.getByRole('combobox').fill('PLANT');
    await options.filter({ hasText: 'South' }).waitFor({ state: 'detached' });
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Plant' }).waitFor();
    await dialog.waitFor({ state: 'detached' });
  });

  it('shows names in place of identifiers, which are in the title and copied', async () => {
    const reply = await ctx.service.send('PUT', '/groups/Hall@demo/', { name: 'Great hall' });
    expect(reply.body.code).toBe(2005);
    const page = await ctx.open('devices/Pump%40demo');
    const trail = page.getByRole('navigation', { name: 'Breadcrumbs' });
    await trail.getByRole('link', { name: 'Great hall' }).waitFor();
    await page.getByRole('button', { name: 'Copy identifier' }).click();
    await page.getByText('Copied.').waitFor();
    await expectSoon(() => page.evaluate('navigator.clipboard.readText()'), 'Pump@demo');
    await page.getByRole('link', { name: 'Devices' }).first().click();
    await page.getByRole('row', { name: /Pump/ }).getByRole('link', { name: 'Great hall' }).waitFor();
    await expectSoon(() => page.getByRole('link', { name: 'Great hall' }).first().getAttribute('title'), 'Hall@demo');
    await ctx.service.send('PUT', '/groups/Hall@demo/', { name: 'Hall' });
  });

  it('search keeps the focus, and dates of the filters have room', async () => {
    const page = await ctx.open('devices', { width: 1440 });
    await waitForView(page);
    await page.getByRole('searchbox', { name: 'Search' }).fill('Pump');
    await page.keyboard.press('Enter');
    await page.getByText('1–1 of 1').waitFor();
    await expectSoon(() => page.evaluate('document.activeElement.type'), 'search');
    await page.getByRole('button', { name: 'More filters' }).click();
    await page.getByRole('combobox', { name: 'Updated', exact: true }).selectOption('From … to …');
    await page.getByLabel('Updated to', { exact: true }).waitFor();
    const crowded = await page.evaluate(`[...document.querySelectorAll('.filter-form .field')].flatMap((field) => {
      const frame = field.getBoundingClientRect();
      return [...field.querySelectorAll('input, select')]
        .filter((input) => input.getBoundingClientRect().right > frame.right + 1 || input.scrollWidth > input.clientWidth + 1)
        .map((input) => input.id);
    })`);
    expect(crowded).toEqual([]);
  });

  it('filters by a span of time and by a circle drawn on a map, each of them one thing to remove', async () => {
    const page = await ctx.open('devices');
    await waitForView(page);
    await page.getByRole('button', { name: 'More filters' }).click();
    await page.getByRole('combobox', { name: 'Created', exact: true }).selectOption('Last 24 hours');
    await page.getByRole('combobox', { name: 'Updated', exact: true }).selectOption('From … to …');
    await page.getByLabel('Updated from').fill('2020-01-01T00:00:00');
    await page.getByLabel('Updated to').fill('2199-01-01T00:00:00');
    const place = page.getByRole('group', { name: 'Place' });
    await place.getByRole('button', { name: 'Draw the circle on a map' }).press('Enter');
    await place.getByText('2 devices with a place').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    expect(await findOverflows(page, [360, 2560, 1280])).toEqual([]);
    await place.getByRole('button', { name: 'South' }).scrollIntoViewIfNeeded();
    const marker = await place.getByRole('button', { name: 'South' }).boundingBox();
    const [x, y] = [(marker?.x ?? 0) + 12, (marker?.y ?? 0) + 12];
    await page.mouse.move(x, y);
    await page.mouse.down();
    await page.mouse.move(x + 20, y + 20, { steps: 5 });
    await page.mouse.up();
    await waitUntil(async () => (await place.getByLabel('Radius (metres)').inputValue()) !== '');
    expect(Math.abs(Number(await place.getByLabel('Latitude').inputValue()) + 30)).toBeLessThan(2);
    await page.getByRole('button', { name: 'Apply', exact: true }).click();
    await page.getByText('1–1 of 1').waitFor();
    const now_s = Date.now() / 1000;
    const { created_at_from, ...search } = Object.fromEntries(new URL(page.url()).searchParams);
    expect(Math.abs(Number(created_at_from) + 86_400 - now_s)).toBeLessThan(60);
    const filters = ['geo_distance', 'geo_lat', 'geo_lon', 'updated_at_from', 'updated_at_to'];
    expect(Object.keys(search).sort()).toEqual(filters);
    await page.getByRole('button', { name: /^Remove the filter Updated: from 1 Jan 2020, .* to 1 Jan 2199/ }).click();
    await page.getByRole('button', { name: /^Remove the filter Place: within [\d.,]+ km of / }).click();
    await page.getByText('1–3 of 3').waitFor();
    expect([...new URL(page.url()).searchParams.keys()]).toEqual(['created_at_from']);
  });

  it('a list shows by itself what is new, says when it was read, and pauses in a hidden tab', async () => {
    const page = await ctx.openWithClock('groups');
    const row = (name: string) => page.getByRole('link', { name, exact: true });
    await row('Hall').waitFor();
    await page.getByText(/^updated \d s ago$/).waitFor();
    const group = { name: 'Yard', id_service: 'Cooling@demo' };
    expect((await ctx.service.send('POST', '/groups/', group)).body.code).toBe(2001);
    await page.clock.fastForward(10_000);
    await row('Yard').waitFor();
    await page.clock.fastForward(5000);
    await page.getByText(/^updated [56] s ago$/).waitFor();
    const sent: string[] = [];
    page.on('request', (request) => void sent.push(request.url()));
    await setHidden(page, true);
    for (let round = 0; round < 3; round++) await page.clock.fastForward(10_000);
    expect(sent).toEqual([]);
    const read = page.waitForRequest(/\/groups\/\?max=50/);
    await setHidden(page, false);
    await read;
  });

  it('a live feed pauses in a hidden tab, and continues behind the last event, or anew', async () => {
    const page = await ctx.openNewTab('events?live=1');
    await page.getByText('Waiting for the next event…').waitFor();
    const change = (firmware: string) => ctx.service.send('PUT', '/devices/South@demo/', { firmware });
    await change('1');
    const live = page.getByRole('region', { name: 'Live events' });
    await live.getByRole('row', { name: /device\.updated South/ }).waitFor();
    const left = page.waitForEvent('requestfailed', (request) => request.url().includes('/events/live/'));
    await setHidden(page, true);
    await left;
    await change('2');
    await setHidden(page, false);
    await live
      .getByRole('row', { name: /device\.updated South/ })
      .nth(1)
      .waitFor();
    await expectSoon(() => live.locator('tbody tr').count(), 2);
    // longer than the log goes back
    await page.route(/\/events\/live\//, (route) =>
      route.request().headers()['last-event-id'] === undefined
        ? route.continue()
        : route.fulfill({ status: 400, json: { code: 4004, message: 'malformed', details: { after: 'is too old' } } }),
    );
    const leftAgain = page.waitForEvent('requestfailed', (request) => request.url().includes('/events/live/'));
    await setHidden(page, true);
    await leftAgain;
    const anew = page.waitForResponse((response) => response.url().includes('/events/live/') && response.ok());
    await setHidden(page, false);
    await anew;
    await change('3');
    await live
      .getByRole('row', { name: /device\.updated South/ })
      .nth(2)
      .waitFor();
  });

  it('the map moves with 100,000 devices', async () => {
    const total = 100_000;
    const page = await ctx.open('about');
    await mockPlacedDevices(page, total);
    const began_at = performance.now();
    await page.getByRole('link', { name: 'Map' }).click();
    await page.getByText('100,000 devices with a place').waitFor();
    const took_ms = Math.round(performance.now() - began_at);
    await page.locator('.cluster').first().waitFor();
    await recordFrames(page);
    await panMap(page, 10);
    expect(await page.locator('.cluster').count()).toBeGreaterThan(20);
    const max_frame_ms = await readLongestFrame_ms(page);
    console.info(`${total} devices read and clustered in ${took_ms} ms; longest frame ${max_frame_ms} ms`);
  });
});
