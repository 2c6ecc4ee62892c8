import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeAll, expect, it } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInBrowser, findAxeViolations, useConsole, waitForView } from '../support/browser.js';

/** Each is offered exactly if /openapi.json lists its operation. */
describeInBrowser('a feature that the interface may have', () => {
  const ctx = useConsole();
  const paths: Record<string, Record<string, { parameters?: { name: string }[] }>> = {};
  const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
  const show = async (path: string) => (await ctx.service.send('GET', path)).body;
  const hasParameter = (name: string) => paths['/devices/']?.get?.parameters?.some((one) => one.name === name) === true;

  beforeAll(async () => {
    Object.assign(paths, (await show('/openapi.json')).paths);
    for (const [path, body] of [
      ['/projects/', { name: 'Plant', id_customer: 'c-1' }],
      ['/services/', { name: 'Cooling', id_project: 'Plant@demo' }],
      ['/groups/', { name: 'Hall', id_service: 'Cooling@demo' }],
      ['/devices/', { name: 'Pump', type: 'pump', id_group: 'Hall@demo' }],
      ['/devices/', { name: 'Fan', type: 'fan', id_group: 'Hall@demo' }],
    ] as const)
      expect((await ctx.service.send('POST', path, body)).body.code).toBe(2001);
  });

  it('events: a change appears in the live tail and in the history of its object', async () => {
    const page = await ctx.open('events');
    await waitForView(page);
    if (paths['/events/live/'] === undefined) {
      expect(await page.getByRole('link', { name: 'Events' }).count()).toBe(0);
      return;
    }
    await press(page, 'Live');
    await page.getByText('Waiting for the next event…').waitFor();
    expect((await ctx.service.send('PUT', '/devices/Pump@demo/', { firmware: '2.0' })).body.code).toBe(2005);
    const live = page.getByRole('region', { name: 'Live events' });
    await live.getByRole('row', { name: /device\.updated Pump@demo/ }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await live.getByRole('link', { name: 'Pump@demo' }).click();
    await press(page, 'History');
    await page.getByRole('row', { name: /device\.updated admin/ }).waitFor();
  });

  it('webhooks: a test reaches the receiver', async () => {
    const page = await ctx.open('webhooks');
    await waitForView(page);
    if (paths['/webhooks/'] === undefined) {
      expect(await page.getByRole('link', { name: 'Webhooks' }).count()).toBe(0);
      return;
    }
    const receiver = createServer((_request, response) => response.end()).listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    const received = once(receiver, 'request');
    await press(page, 'New webhook');
    const form = page.getByRole('dialog', { name: 'New webhook' });
    await form.getByLabel('Name (required)').fill('Alarms');
    await form.getByLabel('Address (required)').fill(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`);
    await form.getByLabel('Types (required)').fill('device.created\ndevice.deleted');
    await form.getByRole('button', { name: 'Create' }).click();
    const secret = page.getByRole('dialog', { name: 'Signing secret' });
    expect(await secret.locator('pre').textContent()).toMatch(/^whsec_/);
    await secret.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('link', { name: 'Alarms', exact: true }).click();
    await press(page, 'Send a test');
    await page.getByText('Test: answered with status 200').waitFor();
    expect((await received)[0].headers['webhook-id']).toBeDefined();
    await page.getByRole('row', { name: /webhook\.test 1 200/ }).waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    receiver.close();
  });

  it('import: a dry run names the wrong line, then the others are imported', async () => {
    const page = await ctx.open('import');
    await waitForView(page);
    if (paths['/import/'] === undefined) {
      expect(await page.getByRole('link', { name: 'Import' }).count()).toBe(0);
      return;
    }
    const csv =
      'resource,name,id_customer,id_project\nproject,New,c-1,\nservice,Under,,New@demo\nservice,Lost,,None@demo\n';
    await page.setInputFiles('#import-file', { name: 'plant.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) });
    await press(page, 'Try');
    await page.getByRole('row', { name: '4 4003 {"id_project":"does not exist"}' }).waitFor();
    expect((await ctx.service.send('GET', '/projects/New@demo/')).status).toBe(404);
    expect(await findAxeViolations(page)).toEqual([]);
    await press(page, 'Import');
    await page.getByText('What has happened').waitFor();
    await page.getByText('3 lines', { exact: true }).waitFor();
    expect(await show('/services/Under@demo/')).toMatchObject({ id_project: 'New@demo' });
  });

  it('import: a file of any length, in pieces, with the right line numbers, and cancelled when asked', async () => {
    if (paths['/import/'] === undefined) return;
    const lines = Array.from({ length: 11_000 }, (_, index) =>
      index === 10_344
        ? '{"resource":"project","name":""}'
        : '{"resource":"project","name":"Plant","id_customer":"c-1","id_developer":"Plant@demo"}',
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
    const page = await ctx.open('devices?type=fan');
    await waitForView(page);
    if (paths['/devices/']?.patch === undefined) {
      expect(await page.getByRole('button', { name: 'Change all…' }).count()).toBe(0);
      return;
    }
    await press(page, 'Change all…');
    const dialog = page.getByRole('dialog', { name: 'Change all devices that match' });
    await dialog.getByLabel('Firmware').fill('9.9');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('1 device matches.').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await dialog.getByLabel('Type the number (1) to confirm').fill('1');
    await dialog.getByRole('button', { name: 'Change' }).click();
    await page.getByText('Changed 1 device.').waitFor();
    expect(await show('/devices/Fan@demo/')).toMatchObject({ firmware: '9.9' });
  });

  it('search and export: what matches is listed and downloaded', async () => {
    const page = await ctx.open('devices');
    await waitForView(page);
    expect(await page.getByRole('searchbox').count()).toBe(hasParameter('q') ? 1 : 0);
    expect(await page.getByRole('button', { name: 'Export CSV' }).count()).toBe(hasParameter('format') ? 1 : 0);
    if (!hasParameter('q') || !hasParameter('format')) return;
    await page.getByRole('searchbox').fill('PUM');
    await page.getByRole('searchbox').press('Enter');
    await page.getByRole('link', { name: 'Fan', exact: true }).waitFor({ state: 'detached' });
    const [download] = await Promise.all([page.waitForEvent('download'), press(page, 'Export CSV')]);
    expect(download.suggestedFilename()).toBe('devices.csv');
    const chunks: Buffer[] = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    const lines = Buffer.concat(chunks).toString().trim().split('\r\n');
    expect(lines).toEqual([expect.stringMatching(/^id_developer,/), expect.stringMatching(/^Pump@demo,/)]);
  });

  it('the preview of a deletion counts what is below', async () => {
    const page = await ctx.open('projects/Plant%40demo?tab=danger');
    await press(page, 'Delete…');
    const dialog = page.getByRole('dialog', { name: 'Delete project' });
    const operation = paths['/projects/{project_id_developer}/']?.delete;
    const hasDryRun = operation?.parameters?.some(({ name }) => name === 'dry_run') === true;
    if (hasDryRun)
      await dialog
        .getByRole('listitem')
        .filter({ hasText: /^Devices2$/ })
        .waitFor();
    else await dialog.getByText('Services directly below it: 1').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
  });
});
