import { beforeAll, expect, it } from '@jest/globals';
import type { Page } from 'playwright-core';
import {
  describeInBrowser,
  expectSoon,
  findAxeViolations,
  findOverflows,
  useConsole,
  waitForView,
} from '../../support/browser.js';
import { waitUntil } from '../../support/process.js';

const long_page_rows = 1000;

describeInBrowser('a list', () => {
  const ctx = useConsole();
  const show = async (path: string) => (await ctx.service.send('GET', path)).body;
  const bar = (page: Page) => page.getByRole('region', { name: 'Selected rows' });
  const box = (page: Page, name: string) => page.getByRole('checkbox', { name: `Select ${name}@demo`, exact: true });

  beforeAll(() =>
    ctx.importObjects([
      { resource: 'project', name: 'Plant', id_customer: 'c-1' },
      { resource: 'service', name: 'Cooling', id_project: 'Plant@demo' },
      { resource: 'group', name: 'Hall', id_service: 'Cooling@demo' },
      ...Array.from({ length: long_page_rows + 100 }, (_, index) => ({
        resource: 'device',
        name: `d${String(index).padStart(4, '0')}`,
        type: 'pump',
        id_group: 'Hall@demo',
      })),
    ]),
  );

  it('forgets a filter that was chosen in its bar with its chip, and by Back', async () => {
    const page = await ctx.open('devices?max=25');
    const status = page.locator('.main-filters').getByLabel('Status', { exact: true });
    const group = page.locator('.main-filters').getByLabel('Group', { exact: true });
    const isFiltered = (name: string) => new URL(page.url()).searchParams.has(name);
    await status.selectOption('disconnected');
    await page.getByRole('button', { name: 'Remove the filter Status: disconnected' }).click();
    await page.waitForURL((url) => !url.searchParams.has('status'));
    await waitForView(page);
    expect([isFiltered('status'), await status.inputValue()]).toEqual([false, '']);
    // the name becomes an identifier
    await group.fill('Hall');
    await page.locator('option[value="Hall@demo"]').waitFor({ state: 'attached' });
    await group.press('Tab');
    await page.waitForURL((url) => url.searchParams.get('id_group') === 'Hall@demo');
    await page.goBack();
    await page.waitForURL((url) => !url.searchParams.has('id_group'));
    await waitForView(page);
    expect([isFiltered('id_group'), await group.inputValue()]).toEqual([false, '']);
  });

  it('leads from behind its end to the last page', async () => {
    const page = await ctx.open('devices?offset=5000&max=50');
    await page.getByText('None on this page of 1,100').waitFor();
    await page.getByRole('button', { name: 'Previous' }).click();
    await page.getByText('1,051–1,100 of 1,100').waitFor();
  });

  it('shows a time of the address that is none as it is', async () => {
    const page = await ctx.open('devices?created_at_from=2026-01-01');
    await page.getByRole('button', { name: 'Remove the filter Created: from 2026-01-01' }).click();
    await page.getByRole('link', { name: 'd0001', exact: true }).waitFor();
  });

  it('changes the rows that were chosen, by mouse and keyboard, and names the one that was changed meanwhile', async () => {
    const page = await ctx.open('devices?max=25');
    await waitForView(page);
    await box(page, 'd0001').click();
    await box(page, 'd0003').click({ modifiers: ['Shift'] });
    await bar(page).getByText('3 devices selected').waitFor();
    await box(page, 'd0005').focus();
    await page.keyboard.press('Space');
    await bar(page).getByText('4 devices selected').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    expect((await ctx.service.send('PUT', '/devices/d0002@demo/', { sensor: 'other' })).body.code).toBe(2005);

    await bar(page).getByRole('button', { name: 'Change…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Change 4 devices' });
    // the service checks the values before anything changes, and its message is beside the field
    await dialog.getByLabel('Time zone').fill('Nowhere');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.locator('.field.wrong', { hasText: 'Time zone' }).waitFor();
    await dialog.getByLabel('Time zone').fill('');
    await dialog.getByLabel('Firmware').fill('9.9');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('d0001, d0002, d0003, d0005').waitFor();
    expect(await show('/devices/d0001@demo/')).not.toHaveProperty('firmware');
    expect(await findAxeViolations(page)).toEqual([]);
    await dialog.getByLabel('Type the number (4) to confirm').fill('4');
    await dialog.getByRole('button', { name: 'Change 4 devices' }).click();
    await dialog.getByText('3 changed, 1 failed.').waitFor();
    await dialog.getByRole('row', { name: /^d0002 Somebody else has changed it meanwhile/ }).waitFor();
    expect(await show('/devices/d0002@demo/')).toMatchObject({ sensor: 'other', version: 1 });
    expect(await show('/devices/d0005@demo/')).toMatchObject({ firmware: '9.9', version: 1 });
    await dialog.getByRole('button', { name: 'Close' }).last().click();
    await bar(page).waitFor({ state: 'detached' });
  });

  it('deletes a page of rows after a preview, and can be cancelled', async () => {
    const page = await ctx.open('devices?max=25&sort=name&order=-1');
    await waitForView(page);
    await page.getByRole('checkbox', { name: 'Select all rows of this page' }).check();
    await bar(page).getByText('25 devices selected').waitFor();
    await bar(page).getByRole('button', { name: 'Delete…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Delete 25 devices' });
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByLabel('What is deleted').getByText('25').waitFor();
    await dialog.getByLabel('Type the number (25) to confirm').fill('25');
    // the first requests are answered, the others wait: nothing but cancelling ends this
    const held: (() => void)[] = [];
    let count = 0;
    await page.route(/\/devices\/d\d+%40demo\/$/, async (route) => {
      if (route.request().method() === 'DELETE' && ++count > 4) await new Promise<void>((go) => held.push(go));
      await route.continue();
    });
    await dialog.getByRole('button', { name: 'Delete 25 devices' }).click();
    await dialog.getByText('Deleting: 4 of 25').waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    for (const go of held.splice(0)) go();
    await dialog.getByText('8 deleted, 0 failed, 17 left as they are because you cancelled.').waitFor();
    expect((await show('/devices/?max=1')).total_documents).toBe(long_page_rows + 100 - 8);
    await dialog.getByRole('button', { name: 'Close' }).last().click();
    await bar(page).getByText('17 devices selected').waitFor();
  });

  it('keeps the selection over pages, until it is cleared', async () => {
    const page = await ctx.open('devices?max=25');
    await box(page, 'd0007').check();
    await page.getByRole('button', { name: 'Next' }).click();
    await box(page, 'd0030').check();
    await bar(page).getByText('2 devices selected').waitFor();
    await page.getByRole('button', { name: 'Previous' }).click();
    await box(page, 'd0007').waitFor();
    await expectSoon(() => box(page, 'd0007').isChecked(), true);
    await bar(page).getByRole('button', { name: 'Clear' }).click();
    await expectSoon(() => box(page, 'd0007').isChecked(), false);
    await bar(page).waitFor({ state: 'detached' });
  });

  it('offers no boxes to a key that may only read', async () => {
    const reply = await ctx.service.send('POST', '/apikeys/', { username: 'reader', scope: 'read' });
    const page = await ctx.openNewTab('devices?max=25', reply.body.details.key);
    await page.getByRole('link', { name: 'd0007', exact: true }).waitFor();
    expect(await page.getByRole('checkbox', { name: /^Select/ }).count()).toBe(0);
  });

  it('shows 1,000 rows, all of them reachable, and renders only the row that changes', async () => {
    const page = await ctx.openNewTab(`devices?max=${long_page_rows}`);
    // "12 s ago" of a row changes with the clock
    await page.clock.setFixedTime(Date.now());
    await page.reload();
    await waitForView(page);
    const rows = page.locator('tbody tr');
    await expectSoon(() => rows.count(), long_page_rows);
    await rows.last().scrollIntoViewIfNeeded();
    await page.evaluate(`{
      window.changed_rows = new Set();
      new MutationObserver((records) => {
        for (const { target } of records) changed_rows.add((target.closest ? target : target.parentElement).closest('tr'));
      }).observe(document.querySelector('tbody'), { subtree: true, childList: true, attributes: true, characterData: true });
    }`);
    await rows.last().getByRole('checkbox').check();
    await bar(page).getByText('1 device selected').waitFor();
    expect(await page.evaluate('changed_rows.size')).toBe(1);
  });

  it('saves its filters, and shows those that are saved as tabs', async () => {
    const page = await ctx.open('devices?type=pump&q=d001');
    await waitForView(page);
    await page.getByRole('button', { name: 'Save these filters…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Save these filters' });
    await dialog.getByLabel('Name (required)').fill('Tens');
    await dialog.getByRole('button', { name: 'Save' }).click();
    const tabs = page.getByRole('navigation', { name: 'Saved filters' });
    await tabs.getByRole('link', { name: 'All devices' }).click();
    await page.getByText('1–50 of 1,').waitFor();
    await tabs.getByRole('link', { name: 'Tens' }).click();
    await page.getByText('1–10 of 10').waitFor();
    await expectSoon(() => tabs.locator('[aria-current=page]').allInnerTexts(), ['Tens']);
    expect(new URL(page.url()).search).toBe('?filter=Tens%40demo');
    expect(await show('/filters/Tens@demo/')).toMatchObject({ name: 'Tens', query: 'type=pump&q=d001' });
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByRole('link', { name: 'Saved filters' }).click();
    await page.getByRole('row', { name: /Tens type=pump&q=d001/ }).waitFor();
  });

  it('filters by values and properties over the declared paths, in the list and in the form of a saved filter', async () => {
    const measures = [
      { path: 'cell.battery', name: 'Battery', unit: '%', type: 'number', filter: true },
      { path: 'cell.hidden' },
    ];
    const model = { name: 'Cell', measures, properties: { site: 'roof', spare: false } };
    expect((await ctx.service.send('POST', '/models/', model)).body.code).toBe(2001);
    for (const [device, battery] of [
      ['d0010@demo', 12],
      ['d0011@demo', 15],
      ['d0012@demo', 80],
    ] as const) {
      expect((await ctx.service.send('PUT', `/devices/${device}/`, { id_model: 'Cell@demo' })).body.code).toBe(2005);
      const stream = { data: { cell: { battery } } };
      expect((await ctx.service.send('POST', `/devices/${device}/streams/`, stream)).body.code).toBe(2001);
    }
    const page = await ctx.open('devices');
    await waitForView(page);
    await page.getByRole('button', { name: 'More filters' }).click();
    const rows = page.getByRole('group', { name: 'Values and properties' });
    const add = rows.getByRole('button', { name: 'Add value or property' });
    for (let count = 0; count < 3; count++) {
      await add.focus();
      await page.keyboard.press('Enter');
    }
    await expectSoon(() => add.isDisabled(), true);
    await rows.getByLabel('Path 1').selectOption('Battery');
    await expectSoon(() => rows.getByLabel('Path 2').locator('option').allInnerTexts(), ['Choose…', 'site', 'spare']);
    await rows.getByLabel('Comparison 1').selectOption('from … to');
    await rows.getByLabel('Value 1', { exact: true }).fill('12,5');
    await rows.getByLabel('Upper value 1').fill('90');
    await rows.getByText('%').waitFor();
    await rows.getByLabel('Path 2').selectOption('site');
    await expectSoon(() => rows.getByLabel('Comparison 2').locator('option').allInnerTexts(), ['is']);
    await rows.getByLabel('Value 2').fill('roof');
    await rows.getByLabel('Path 3').selectOption('spare');
    await rows.getByLabel('Value 3').selectOption('no');
    expect(await findAxeViolations(page)).toEqual([]);
    expect(await findOverflows(page, [360, 2560, 1280])).toEqual([]);
    await page.keyboard.press('Enter');
    await page.getByText('1–2 of 2').waitFor();
    expect(Object.fromEntries(new URL(page.url()).searchParams)).toEqual({
      'latest.cell.battery_from': '12.5',
      'latest.cell.battery_to': '90',
      'properties.site': 'roof',
      'properties.spare': 'false',
    });
    await page.getByRole('button', { name: 'Remove the filter latest.cell.battery: from 12.5 to 90' }).click();
    await page.getByText('1–3 of 3').waitFor();
    // the worst first
    await page.getByRole('button', { name: 'Battery', exact: true }).click();
    await page.getByRole('row', { name: /d0010 .* 12 %/ }).waitFor();
    await expectSoon(() => page.locator('tbody tr td:nth-child(2)').allInnerTexts(), ['d0010', 'd0011', 'd0012']);

    await ctx.show('filters/new');
    await page.getByLabel('Name (required)').fill('Low');
    await page.getByText('Build the query').click();
    await rows.getByRole('button', { name: 'Add value or property' }).click();
    await rows.getByLabel('Path 1').selectOption('Battery');
    await rows.getByLabel('Comparison 1').selectOption('to');
    await rows.getByLabel('Value 1').fill('15');
    await expectSoon(() => page.getByLabel('Query (required)').inputValue(), 'latest.cell.battery_to=15');
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByText('Created Low.').waitFor();
    expect(await show('/devices/?filter=Low@demo&fields=name')).toMatchObject({ total_documents: 2 });
  });

  it('has the last values of the measures as columns, and shows its request for the shell', async () => {
    const measures = [
      { path: 'air.t', name: 'Air', unit: '°C', decimals: 1 },
      { path: '/a.b', name: 'Pressure' },
      { path: 'c', name: 'Third' },
      { path: 'd', name: 'Fourth' },
    ];
    expect((await ctx.service.send('POST', '/models/', { name: 'Station', measures })).body.code).toBe(2001);
    const changed = { id_model: 'Station@demo', type: 'station' };
    expect((await ctx.service.send('PUT', '/devices/d0007@demo/', changed)).body.code).toBe(2005);
    const stream = { at: Math.floor(Date.now() / 1000) - 3600, data: { air: { t: 21.25 }, 'a.b': true } };
    expect((await ctx.service.send('POST', '/devices/d0007@demo/streams/', stream)).body.code).toBe(2001);
    const page = await ctx.open('devices?id_model=Station%40demo');
    await page.getByRole('row', { name: /d0007 .*21\.3 °C 1 hr\. ago true 1 hr\. ago – / }).waitFor();
    const heads = async () => (await page.locator('thead th').allInnerTexts()).slice(-5);
    await expectSoon(heads, ['Data due', 'Air', 'Pressure', 'Third', 'Updated']);
    const height = async () => (await page.getByRole('row', { name: /d0007/ }).boundingBox())?.height ?? 0;
    const comfortable_px = await height();
    await page.locator('summary', { hasText: 'View' }).click();
    await page.getByRole('button', { name: 'Compact' }).click();
    await waitUntil(async () => (await height()) < comfortable_px);
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Show as curl' }).click();
    const line = await page.getByRole('dialog', { name: 'Show as curl' }).locator('pre').textContent();
    expect(line).toMatch(
      /^curl -H "service\.apikey: \$KEY" 'http:\/\/127\.0\.0\.1:\d+\/devices\/\?id_model=Station%40demo&max=50&fields=/,
    );
    const { result } = await show(new URL(/'(.*)'/.exec(line ?? '')?.[1] ?? '').href.replace(ctx.service.url, ''));
    expect(result).toMatchObject([{ name: 'd0007', latest: { data: { air: { t: 21.25 }, 'a.b': true } } }]);
    expect(result[0]).not.toHaveProperty('owner');
    const later = await ctx.openWithClock('devices?id_model=Station%40demo');
    await later.getByRole('row', { name: /d0007/ }).waitFor();
    await later.clock.fastForward(3 * 86_400_000);
    await later.getByRole('row', { name: /d0007 .* late by 2 d / }).waitFor();
  });

  it('shows the progress of an export, which can be cancelled', async () => {
    const page = await ctx.open('devices?max=25');
    await waitForView(page);
    await page.route(/format=csv/, () => undefined);
    await page.locator('summary', { hasText: 'View' }).click();
    await page.getByRole('button', { name: 'Export CSV' }).click();
    const downloads = page.getByRole('region', { name: 'Downloads' });
    await downloads.getByRole('progressbar', { name: /^devices\.csv/ }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    // it continues in other views
    await page.getByRole('link', { name: 'Models' }).click();
    await downloads.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('The download of devices.csv is cancelled.').waitFor();
    await downloads.waitFor({ state: 'detached' });
  });
});
