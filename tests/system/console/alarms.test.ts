import { beforeAll, expect, it } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInBrowser, expectSoon, findAxeViolations, useConsole, waitForView } from '../../support/browser.js';
import { waitUntil } from '../../support/process.js';

interface CanvasLike {
  getImageData(left: number, top: number, width: number, height: number): { data: Uint8ClampedArray };
}

describeInBrowser('alarms', () => {
  const ctx = useConsole();
  const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
  const show = async (path: string) => (await ctx.service.send('GET', path)).body;
  const send = async (device: string, data: object) =>
    expect((await ctx.service.send('POST', `/devices/${device}@demo/streams/`, { data })).body.code).toBe(2001);
  /** The alarms of a device, as [rule, state, note, user who acknowledged, user who closed]. */
  const storedOf = async (device: string) => {
    const { result } = await show(`/devices/${device}@demo/alarms/?sort=raised_at&order=1`);
    return result.map((alarm: Record<string, unknown>) =>
      ['rule', 'state', 'note', 'acknowledged_by', 'closed_by'].map((field) => alarm[field]),
    );
  };

  beforeAll(async () => {
    await ctx.importObjects([
      { resource: 'project', name: 'Plant', id_customer: 'c-1' },
      { resource: 'service', name: 'Cooling', id_project: 'Plant@demo' },
      { resource: 'group', name: 'Hall', id_service: 'Cooling@demo' },
      { resource: 'model', name: 'Motor', measures: [{ path: 'rpm', name: 'Speed', unit: '1/min' }] },
      ...['Pump', 'Fan', 'Valve'].map((name) => ({ resource: 'device', name, type: 'x', id_group: 'Hall@demo' })),
    ]);
  });

  it('a rule is made with its conditions, named where they are wrong, and changed', async () => {
    const page = await ctx.open('alarmrules');
    await page.getByRole('link', { name: 'New alarm rule' }).click();
    await page.getByLabel('Name (required)').fill('Overpressure');
    await page.getByLabel('Severity (required)').selectOption('critical');
    await page.getByLabel('for', { exact: true }).fill('1.5');
    await page.getByText('More fields').click();
    await page.getByLabel('Enabled').selectOption('no');
    await press(page, 'Add condition');
    const condition = (number: number) => page.getByRole('group', { name: `Condition ${number}` });
    for (const number of [1, 2]) await condition(number).getByLabel('Path').selectOption('another…');
    await condition(1).getByLabel('Comparison').selectOption('is');
    for (const [field, text] of [
      ['Path', 'mode'],
      ['Value', '"8"'],
    ] as const)
      await condition(1).getByLabel(field, { exact: true }).fill(text);
    for (const [field, text] of [
      ['Path', 'bar'],
      ['Value', '8'],
      ['Until', '9.50'],
    ] as const)
      await condition(2).getByLabel(field, { exact: true }).fill(text);
    await press(page, 'Create');
    await condition(2).getByText('must be less than value').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await condition(2).getByLabel('Until', { exact: true }).fill('7.50');
    await press(page, 'Create');
    await page.getByText('mode = "8"; bar > 8, until 7.5').waitFor();
    expect(await show('/alarmrules/Overpressure@demo/')).toMatchObject({
      severity: 'critical',
      enabled: false,
      for: 90,
      conditions: [
        { path: 'mode', op: '=', value: '8' },
        { path: 'bar', op: '>', value: 8, clear: 7.5 },
      ],
    });
    await press(page, 'Edit');
    await expectSoon(() => page.getByLabel('for', { exact: true }).inputValue(), '1.5');
    await page.getByLabel('for', { exact: true }).fill('0');
    await press(page, 'Remove condition 1');
    await expectSoon(() => condition(1).getByLabel('Path', { exact: true }).inputValue(), 'bar');
    await press(page, 'Add condition');
    await condition(2).getByLabel('Kind').selectOption('the status is');
    for (const status of ['data late', 'disconnected'])
      await condition(2).getByRole('checkbox', { name: status }).check();
    await page.getByLabel('Match').selectOption('any');
    await press(page, 'Save');
    await page.getByText('Saved Overpressure.').waitFor();
    const changed = await show('/alarmrules/Overpressure@demo/');
    expect([changed.for, changed.conditions]).toEqual([
      0,
      [{ path: 'bar', op: '>', value: 8, clear: 7.5 }, { status: ['no_data', 'disconnected'] }],
    ]);
    await page.getByText('bar > 8, until 7.5; status is no_data or disconnected').waitFor();
    // enabled with the condition that the tests below need
    const body = { enabled: true, conditions: changed.conditions.slice(0, 1) };
    expect((await ctx.service.send('PUT', '/alarmrules/Overpressure@demo/', body)).body.code).toBe(2005);
  });

  it('the page shows the worst and oldest first, as they come, and they are acknowledged and closed', async () => {
    const rule = { severity: 'warning', conditions: [{ path: 'rpm', op: '<', value: 100 }] };
    expect((await ctx.service.send('POST', '/alarmrules/', { name: 'Slow', ...rule })).body.code).toBe(2001);
    await send('Fan', { rpm: 5 });
    await send('Valve', { bar: 9 });
    const page = await ctx.openWithClock('alarms');
    const rows = page.getByRole('region', { name: 'Open alarms' }).locator('tbody tr');
    const texts = async () =>
      (await rows.allInnerTexts()).map((row) => /(critical|warning)\s+(\w+)/.exec(row)?.slice(1));
    await rows.nth(1).waitFor();
    await expectSoon(texts, [
      ['critical', 'Valve'],
      ['warning', 'Fan'],
    ]);
    await send('Pump', { bar: 8.25, rpm: 50 });
    await page.clock.fastForward(10_000);
    await rows.nth(3).waitFor();
    await expectSoon(texts, [
      ['critical', 'Valve'],
      ['critical', 'Pump'],
      ['warning', 'Fan'],
      ['warning', 'Pump'],
    ]);
    await rows.nth(1).getByText('bar 8.25').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Acknowledge… Valve@demo, Overpressure@demo' }).focus();
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog');
    await page.keyboard.type('x '.repeat(101));
    await page.keyboard.press('Enter');
    await dialog.getByText('must be 0 to 200 characters').waitFor();
    await dialog.getByLabel('Note').fill('On my way');
    await page.keyboard.press('Enter');
    await rows.nth(0).getByText('acknowledged by admin').waitFor();
    expect(await storedOf('Valve')).toEqual([['Overpressure@demo', 'acknowledged', 'On my way', 'admin', undefined]]);
    await page.getByRole('checkbox', { name: 'Select Pump@demo, Overpressure@demo' }).check();
    await page.getByRole('checkbox', { name: 'Select Pump@demo, Slow@demo' }).check();
    await page.getByRole('region', { name: 'Selected alarms' }).getByRole('button', { name: 'Close…' }).click();
    await page.getByRole('dialog', { name: 'Close 2 alarms' }).getByLabel('Note').fill('Test');
    await page.keyboard.press('Enter');
    await page.getByText('Closed 2 alarms.').waitFor();
    await rows.nth(2).waitFor({ state: 'detached' });
    const closed = ['closed', 'Test', undefined, 'admin'];
    expect((await storedOf('Pump')).sort()).toEqual([
      ['Overpressure@demo', ...closed],
      ['Slow@demo', ...closed],
    ]);
    await press(page, 'All');
    await page
      .getByRole('row', { name: /Pump.*closed.*Test/ })
      .first()
      .waitFor();
  });

  it('a rule says before it is saved which devices would be in alarm', async () => {
    await send('Pump', { note: 1 });
    const page = await ctx.open('alarmrules/Slow%40demo?tab=edit');
    const condition = page.getByRole('group', { name: 'Condition 1' });
    // the names and units of models, then the paths that devices have sent last
    await condition.getByText('1/min').waitFor();
    await expectSoon(
      () => condition.getByLabel('Path').locator('option').allInnerTexts(),
      ['choose…', 'Speed', 'note', 'bar', 'another…'],
    );
    await expectSoon(() => condition.locator('option:checked').allInnerTexts(), ['the value of', 'Speed', 'is below']);
    await press(page, 'Which devices now?');
    await page.getByText('1 of 3 devices would be in alarm now.').waitFor();
    await page.getByText('2 devices cannot be told: the last stream has not all of the paths.').waitFor();
    const preview = page.getByRole('group', { name: 'Preview' });
    await preview.getByText('At Fan it would have been raised once since yesterday.').waitFor();
    await preview.getByRole('img', { name: 'rpm of Fan since yesterday' }).waitFor();
    await preview.getByText('warning < 100').waitFor();
    await expectSoon(() => preview.getByRole('list').getByRole('link').allInnerTexts(), ['Fan']);
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByLabel('Where').selectOption('the device');
    await page.getByLabel('Device', { exact: true }).fill('Valve@demo');
    await preview.getByRole('link').first().waitFor({ state: 'detached' });
    await press(page, 'Which devices now?');
    await page.getByText('0 of 1 device would be in alarm now.').waitFor();
    await condition.getByLabel('Kind').selectOption('nothing comes with');
    await preview.getByText('Complete the conditions first.').waitFor();
    await expectSoon(() => page.getByRole('button', { name: 'Which devices now?' }).isDisabled(), true);
  });

  it('a rule is given another condition and another part of the fleet', async () => {
    const rule = { name: 'Idle', severity: 'info', conditions: [{ path: 'rpm', op: '<', value: 1 }] };
    await ctx.service.create('alarmrules', { ...rule, id_device: 'Valve@demo' });
    const page = await ctx.open('alarmrules/Idle%40demo?tab=edit');
    const condition = page.getByRole('group', { name: 'Condition 1' });
    // the paths to choose from have been read
    await condition.getByText('1/min').waitFor();
    await condition.getByLabel('Kind').selectOption('nothing comes with');
    await condition.getByLabel('Path').selectOption('Speed');
    await condition.getByLabel('Minutes').fill('30');
    await press(page, 'Save');
    await page.getByText('no rpm for 30 min').waitFor();
    expect(await show('/alarmrules/Idle@demo/')).toMatchObject({
      ...{ id_device: 'Valve@demo', conditions: [{ absent: 'rpm', minutes: 30 }] },
    });
    await press(page, 'Edit');
    await page.getByLabel('Where').selectOption('the group');
    await page.getByLabel('Group', { exact: true }).fill('Hall@demo');
    await press(page, 'Save');
    // the notice of the first change may still be there
    await waitUntil(async () => (await show('/alarmrules/Idle@demo/')).id_group === 'Hall@demo');
    expect(await show('/alarmrules/Idle@demo/')).not.toHaveProperty('id_device');
    expect((await ctx.service.send('DELETE', '/alarmrules/Idle@demo/')).body.code).toBe(2004);
  });

  it('the severity of open alarms is in the list, in the hierarchy and on the map', async () => {
    const place = { lon: 2, lat: 48 };
    expect((await ctx.service.send('PUT', '/devices/Fan@demo/', place)).body.code).toBe(2005);
    const page = await ctx.open('devices');
    await page.getByRole('row', { name: /Fan OK, sends no status 1 warning/ }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await ctx.show('hierarchy');
    for (const name of ['Plant', 'Cooling', 'Hall']) await press(page, `Contents of ${name}`);
    const tree = page.locator('.tree');
    for (const name of ['Plant', 'Cooling', 'Hall']) await tree.getByTitle(`Open alarms: ${name}`).first().waitFor();
    await tree
      .getByRole('listitem')
      .filter({ hasText: /^Fan1 warning/ })
      .waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await ctx.show('map');
    await page.getByRole('button', { name: 'Fan, open alarms: 1 warning' }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
  });

  it('charts have the thresholds of rules that cover the device, and its alarms as bands', async () => {
    for (const [name, scope] of [
      ['Below', { id_service: 'Cooling@demo' }],
      ['Elsewhere', { id_device: 'Valve@demo' }],
    ] as const) {
      const conditions = [{ path: '/rpm', op: '>', value: name === 'Below' ? 1000 : 2000 }];
      expect(
        (await ctx.service.send('POST', '/alarmrules/', { name, severity: 'info', conditions, ...scope })).body.code,
      ).toBe(2001);
    }
    const page = await ctx.open('devices/Fan%40demo');
    const chart = page.getByRole('img', { name: 'Measurements of Fan: 1 points of rpm' });
    await chart.waitFor();
    const limits = page.locator('.readings .badge');
    await limits.nth(1).waitFor();
    await expectSoon(() => limits.allInnerTexts(), ['warning < 100', 'info > 1,000']);
    await page.getByText('in this time').click();
    await page.getByRole('listitem').filter({ hasText: 'warning alarm Slow, open' }).waitFor();
    // the colour of a warning, laid thinly
    const band = await chart.locator('canvas').evaluate((canvas: never) => {
      const { width, height } = canvas as { width: number; height: number };
      const context = (canvas as unknown as { getContext(kind: string): CanvasLike }).getContext('2d');
      const { data } = context.getImageData(0, 0, width, height);
      let count = 0;
      for (let index = 0; index < data.length; index += 4)
        if (data[index + 3] === 0x33 && Math.abs((data[index] ?? 0) - 0xc0) < 6) count++;
      return count;
    });
    expect(band).toBeGreaterThan(100);
    expect(await findAxeViolations(page)).toEqual([]);
  });

  it('the overview leads to them, and the page of a device shows its own', async () => {
    const page = await ctx.open('');
    const counts = page.getByRole('list', { name: 'Open alarms by severity' });
    await counts.getByRole('link', { name: '1 warning' }).waitFor();
    const worst = page.getByRole('region', { name: 'Open alarms' }).first();
    await worst.getByRole('row', { name: /warning Fan/ }).waitFor();
    const severities = async () =>
      (await worst.locator('tbody tr').allInnerTexts()).map((row) => /critical|warning/.exec(row)?.[0]);
    await expectSoon(severities, ['critical', 'warning']);
    expect(await page.getByText('Needs attention').count()).toBe(0);
    await counts.getByRole('link', { name: '1 critical' }).click();
    await page.getByRole('link', { name: 'Valve', exact: true }).click();
    const open = page.getByRole('region', { name: 'Open alarms' }).first();
    await open.getByRole('row', { name: /critical.*Overpressure.*On my way/ }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await press(page, 'Close… Valve@demo, Overpressure@demo');
    const dialog = page.getByRole('dialog', { name: 'Close 1 alarm' });
    await expectSoon(() => dialog.getByLabel('Note').inputValue(), 'On my way');
    await dialog.getByLabel('Note').fill('');
    await press(page, 'Close 1 alarm');
    await open.waitFor({ state: 'detached' });
    expect(await storedOf('Valve')).toEqual([['Overpressure@demo', 'closed', undefined, 'admin', 'admin']]);
    await press(page, 'Alarms and events');
    await page.getByRole('row', { name: /critical.*closed/ }).waitFor();
    await ctx.show('events?resource=alarm');
    const raised = page.getByRole('row', { name: /alarm\.raised Valve – critical Overpressure$/ }).first();
    await raised.getByRole('link', { name: 'Valve', exact: true }).waitFor();
  });

  it('a key that may only read is offered no answer', async () => {
    const body = { username: 'rita', scope: 'read' };
    const { key } = (await ctx.service.send('POST', '/apikeys/', body)).body.details;
    const page = await ctx.openNewTab('alarms', key);
    await page.getByRole('row', { name: /warning.*Fan/ }).waitFor();
    expect(await page.getByRole('button', { name: /Acknowledge|Close/ }).count()).toBe(0);
    await page.getByRole('link', { name: 'Alarm rules' }).click();
    await page.getByRole('link', { name: 'Slow' }).waitFor();
    await waitForView(page);
    expect(await page.getByRole('link', { name: 'New alarm rule' }).count()).toBe(0);
  });

  it('new alarms are heard and notified of once the person has allowed it, in all views', async () => {
    const page = await ctx.openNewTab('about');
    await page.addInitScript(`
      window.notices = [];
      window.asked = 0;
      window.tones = 0;
      window.Notification = class {
        static permission = 'default';
        static async requestPermission() {
          asked++;
          return (this.permission = 'granted');
        }
        constructor(title, { body }) {
          notices.push([title, body]);
        }
      };
      const start = OscillatorNode.prototype.start;
      OscillatorNode.prototype.start = function (...times) {
        tones++;
        start.apply(this, times);
      };
    `);
    await page.reload();
    await page.getByRole('link', { name: 'Alarms', exact: true }).click();
    const choice = page.getByRole('button', { name: 'Notify me of new alarms' });
    await choice.waitFor();
    expect([await choice.getAttribute('aria-pressed'), await page.evaluate('[asked, tones]')]).toEqual([
      'false',
      [0, 0],
    ]);
    const connected = page.waitForResponse((response) => response.url().includes('/events/live/?type=alarm.raised'));
    await choice.press('Enter');
    await connected;
    await expectSoon(() => page.evaluate('[asked, tones]'), [1, 2]);
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByRole('link', { name: 'Models' }).click();
    await send('Pump', { rpm: 7 });
    await waitUntil(async () => (await page.evaluate('notices.length')) === 1);
    await expectSoon(() => page.evaluate('[notices, tones]'), [[['warning: Slow@demo', 'Pump@demo']], 4]);
    await page.getByRole('link', { name: 'Alarms', exact: true }).click();
    await choice.click();
    await page.reload();
    await expectSoon(() => choice.getAttribute('aria-pressed'), 'false');
  });

  it('a hundred of each severity are shown, with a link to all of them', async () => {
    const rule = { name: 'Many', severity: 'info', conditions: [{ path: 'level', op: '>=', value: 1 }] };
    expect((await ctx.service.send('POST', '/alarmrules/', rule)).body.code).toBe(2001);
    const names = Array.from({ length: 101 }, (_, index) => `Tank ${index}`);
    await ctx.importObjects(names.map((name) => ({ resource: 'device', name, type: 'x', id_group: 'Hall@demo' })));
    const streams = names.map((name) => ({ device: `${name}@demo`, data: { level: 1 } }));
    expect((await ctx.service.send('POST', '/streams/', streams)).status).toBe(200);
    const page = await ctx.open('alarms');
    const link = page.getByRole('link', { name: 'All 101 open alarms of severity info' });
    await link.waitFor();
    await expectSoon(() => page.getByRole('row', { name: /info/ }).count(), 100);
    // fifteen at a glance, and on a phone a card with both buttons
    await page.setViewportSize({ width: 1440, height: 900 });
    expect((await page.locator('tbody tr').nth(14).boundingBox())?.y).toBeLessThan(900 - 24);
    await page.setViewportSize({ width: 360, height: 740 });
    const card = page.locator('tbody tr').first();
    for (const button of await card.getByRole('button').all()) {
      const { x = 0, width = 999 } = (await button.boundingBox()) ?? {};
      expect([x >= 0, x + width <= 360]).toEqual([true, true]);
    }
    await expectSoon(() => card.getByRole('button').count(), 2);
    expect(await findAxeViolations(page)).toEqual([]);
    await page.setViewportSize({ width: 1280, height: 900 });
    await link.click();
    await page.getByText('1–50 of 101').waitFor();
  });
});
