import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { expect, it } from '@jest/globals';
import mqtt from 'mqtt';
import type { Page } from 'playwright-core';
import { buildSnippets } from '../../../src/console/device/snippets.js';
import { describeInBrowser, expectSoon, findAxeViolations, useConsole, waitForView } from '../../support/browser.js';
import { findFreePort, waitUntil } from '../../support/process.js';

describeInBrowser('an operator', () => {
  const ctx = useConsole();
  const field = (page: Page, label: string) => page.getByLabel(label, { exact: true });
  const press = (page: Page, name: string | RegExp) => page.getByRole('button', { name, exact: true }).click();
  const title = (page: Page, name: string) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
  const show = async (path: string) => (await ctx.service.send('GET', path)).body;

  it('signs in with a key, which no address and no storage but the tab holds', async () => {
    const page = await ctx.openNewTab('devices', null);
    await page.locator('#key:focus').waitFor();
    await field(page, 'API key').fill('not-a-key');
    await press(page, 'Sign in');
    await page.getByText('This key is not valid.').waitFor();
    await field(page, 'API key').fill(ctx.service.key);
    await press(page, 'Sign in');
    await title(page, 'Devices');
    expect(page.url()).toBe(`${ctx.service.url}/console/devices`);
    expect(await page.evaluate('JSON.stringify(localStorage)')).not.toContain(ctx.service.key);
    expect(await page.context().cookies()).toEqual([]);
    await page.locator('summary', { hasText: 'admin' }).click();
    await press(page, 'Sign out');
    await title(page, 'Sign in');
    expect(await page.evaluate('sessionStorage.length')).toBe(0);
  });

  it('reaches a live chart of a device of its own by the steps of the README', async () => {
    const [, steps = ''] = /device of your own(.*?)\n## /s.exec(readFileSync('README.md', 'utf8')) ?? [];
    const page = await ctx.open('');
    await page.getByText('This account is empty.').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    let device: ChildProcess | undefined;
    const began_at = performance.now();
    try {
      for (const [, label = ''] of steps.matchAll(/\*\*(.+?)\*\*/g)) {
        const place = page.locator(label === 'Devices' ? 'nav' : 'main');
        const options = { name: label, exact: true };
        await place.getByRole('link', options).or(place.getByRole('button', options)).click();
        if (label.startsWith('New ')) {
          await title(page, label);
          for (const input of await page.getByLabel(/\(required\)$/).all())
            if ((await input.inputValue()) === '') await input.fill(`My ${label.slice(4)}`);
          await press(page, 'Create');
          await title(page, `My ${label.slice(4)}`);
        }
        if (label.startsWith('Create a key')) await page.getByText('The key. This is the only time').waitFor();
        if (label === 'Node.js') {
          const program = (await page.locator('pre').last().textContent()) ?? '';
          device = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: 'ignore' });
          await page.locator('.light.on').waitFor();
        }
      }
      await page
        .getByRole('img', { name: /^Measurements of My device: ([2-9]|\d\d+) points of temperature$/ })
        .waitFor();
    } finally {
      device?.kill();
    }
    expect((await show('/devices/My%20device@demo/')).id_group).toBe('Default@demo');
    console.info(`a live chart after ${Math.round((performance.now() - began_at) / 1000)} s`);
  });

  it('prints a program that goes on after a restart of the service', async () => {
    const port = await findFreePort();
    const access = {
      id: 'p@demo',
      url: `http://127.0.0.1:${port}`,
      host: '',
      mqtt_port: '',
      mqtts_port: '',
      username: '',
      password: '',
    };
    const program = buildSnippets({ ...access, key: 'k' }).find(({ name }) => name === 'Node.js')?.text ?? '';
    const device = spawn(process.execPath, ['--input-type=module', '--eval', program]);
    let printed = '';
    device.stdout.on('data', (text) => {
      printed += text;
    });
    const server = createServer((_request, response) => response.end());
    try {
      await waitUntil(() => printed.includes('fetch failed'));
      server.listen(port, '127.0.0.1');
      await waitUntil(() => /^200 /m.test(printed));
    } finally {
      device.kill();
      server.close();
      server.closeAllConnections();
    }
  });

  it('creates the hierarchy, down to a device', async () => {
    const page = await ctx.open('projects');
    await page.getByRole('link', { name: 'New project' }).click();
    await title(page, 'New project');
    await field(page, 'Customer (required)').fill('c-1');
    await press(page, 'Create');
    // the message is beside the field, which has the focus
    await page.locator('.field.wrong', { hasText: 'Name' }).locator('input:focus').waitFor();
    await field(page, 'Name (required)').fill('Plant');
    await press(page, 'Create');
    await title(page, 'Plant');
    for (const [link, name] of [
      ['New service', 'Cooling'],
      ['New group', 'Hall 1'],
    ] as const) {
      await page.getByRole('link', { name: link }).click();
      await field(page, 'Name (required)').fill(name);
      await press(page, 'Create');
      await title(page, name);
    }
    await page.getByRole('link', { name: 'New asset' }).click();
    await field(page, 'Name (required)').fill('Line 1');
    await press(page, 'Create');
    await title(page, 'Line 1');
    await page.getByRole('navigation', { name: 'Breadcrumbs' }).getByRole('link', { name: 'Hall 1' }).click();
    await page.getByRole('link', { name: 'New device' }).click();
    await field(page, 'Name (required)').fill('Pump');
    await page.getByRole('combobox', { name: 'Type', exact: true }).fill('pump');
    await press(page, 'Create');
    await title(page, 'Pump');
    await page.getByText('Waiting for the first message…').waitFor();
    expect(await show('/assets/Line%201@demo/')).toMatchObject({ id_group: 'Hall 1@demo' });
    expect(await show('/devices/Pump@demo/')).toMatchObject({ name: 'Pump', type: 'pump', id_group: 'Hall 1@demo' });
    expect(await show('/groups/Hall%201@demo/')).toMatchObject({ id_service: 'Cooling@demo' });
    await page.getByRole('navigation', { name: 'Breadcrumbs' }).getByRole('link', { name: 'Plant' }).waitFor();
  });

  it('connects the device: a key, programs that send with it, and a light', async () => {
    const page = await ctx.open('devices/Pump%40demo?tab=connect');
    await press(page, 'Create a key for this device');
    await page.getByText('The key. This is the only time it is shown.').waitFor();
    const [key = '', curl] = await page.locator('pre').allTextContents();
    const { url } = ctx.service;
    expect(curl).toBe(
      `curl -H 'service.apikey: ${key}' ${url}/devices/Pump%40demo/streams/ -d '{"data":{"temperature":21.5}}'`,
    );
    await press(page, 'Create MQTT credentials');
    await page.getByText('The password of the user Pump@demo. This is the only time it is shown.').waitFor();
    await press(page, 'mosquitto_pub');
    const [, password, command] = await page.locator('pre').allTextContents();
    expect(command).toContain(
      `mosquitto_pub -h 127.0.0.1 -p ${ctx.mqtt_port} -u Pump@demo -P ${password} -q 1 -t Pump@demo/streams -m `,
    );
    expect(await findAxeViolations(page)).toEqual([]);
    // as the line for curl does, but for the kind of stream, as the chart is to be empty
    const headers = { 'service.apikey': key };
    const body = JSON.stringify({ data: { battery: 87 }, _t: 'sta' });
    expect((await fetch(`${url}/devices/Pump%40demo/streams/`, { method: 'POST', headers, body })).status).toBe(200);
    await page.locator('.light.on').getByText('Connected: last message').waitFor();
  });

  it('gives the device credentials, and sees what it sends over MQTT in the chart without a reload', async () => {
    const page = await ctx.open('devices/Pump%40demo?tab=mqtt');
    await field(page, 'Username (required)').fill('pump-1');
    await field(page, 'Password (required)').fill('open sesame');
    await press(page, 'Set credentials');
    await page.getByText('The credentials are set.').waitFor();
    await press(page, 'Overview');
    await page.getByText('This device has not sent data yet.').waitFor();
    const address = `mqtt://127.0.0.1:${ctx.mqtt_port}`;
    const device = await mqtt.connectAsync(address, { username: 'pump-1', password: 'open sesame' });
    await device.publishAsync('Pump@demo/streams', JSON.stringify({ bar: 2.5 }), { qos: 1 });
    const acknowledged_at = performance.now();
    await page.getByRole('img', { name: 'Measurements of Pump: 1 points of bar' }).waitFor();
    await page.getByText('2.5', { exact: true }).waitFor();
    console.info(`shown ${Math.round(performance.now() - acknowledged_at)} ms after the acknowledgement`);

    await page.getByRole('link', { name: 'MQTT connections' }).click();
    const row = page.getByRole('row', { name: /Pump/ });
    await row.getByText('127.0.0.1').waitFor();
    const closed = new Promise<void>((resolve) => device.once('close', () => resolve()));
    await row.getByRole('button').click();
    await press(page, 'Disconnect');
    await closed;
    await device.endAsync(true);
  });

  it('resolves a conflict field by field', async () => {
    const page = await ctx.open('devices/Pump%40demo?tab=edit');
    await field(page, 'Description').fill('mine');
    await page.getByText('More fields').click();
    await field(page, 'Firmware').fill('2.0');
    const theirs = { description: 'theirs', sensor: 'pressure' };
    expect((await ctx.service.send('POST', '/devices/Pump@demo/streams/', { data: { bar: 4 } })).status).toBe(200);
    expect((await ctx.service.send('PUT', '/devices/Pump@demo/', theirs)).body.code).toBe(2005);
    await press(page, 'Save');
    const dialog = page.getByRole('dialog', { name: 'Changed meanwhile' });
    await dialog.getByText('Sensor: none → pressure').waitFor();
    // nothing that no form has, such as the time of the last stream
    await expectSoon(() => dialog.getByRole('listitem').allInnerTexts(), ['Sensor: none → pressure']);
    expect(await findAxeViolations(page)).toEqual([]);
    await dialog.getByLabel('Mine: mine').check();
    await dialog.getByRole('button', { name: 'Save this choice' }).click();
    await page.getByText('Saved Pump.').waitFor();
    expect(await show('/devices/Pump@demo/')).toMatchObject({
      description: 'mine',
      firmware: '2.0',
      sensor: 'pressure',
      version: 2,
    });
  });

  it('keeps filters, sort and columns in the address', async () => {
    const page = await ctx.open('devices');
    await page.locator('.main-filters').getByLabel('Status', { exact: true }).selectOption('disconnected');
    await page.getByRole('button', { name: 'Remove the filter Status: disconnected' }).waitFor();
    await press(page, 'Name');
    await page.locator('summary', { hasText: 'View' }).click();
    await page.getByRole('checkbox', { name: 'Firmware' }).check();
    await page.keyboard.press('Escape');
    await page.getByRole('checkbox', { name: 'Firmware' }).waitFor({ state: 'hidden' });
    await page.locator('summary', { hasText: 'View' }).click();
    await page.getByRole('heading', { level: 1 }).click();
    await page.getByRole('checkbox', { name: 'Firmware' }).waitFor({ state: 'hidden' });
    const url = new URL(page.url());
    expect(Object.fromEntries(url.searchParams)).toEqual({
      status: 'disconnected',
      sort: 'name',
      order: '1',
      columns: 'name,status,type,id_group,id_asset,last_stream_at,stream_due_at,updated_at,firmware',
    });
    await page.reload();
    await page.getByRole('columnheader', { name: 'Firmware' }).waitFor();
    await page.getByRole('button', { name: 'Remove the filter Status: disconnected' }).click();
    await page.getByRole('link', { name: 'Pump', exact: true }).waitFor();
    await page.goBack();
    await page.getByRole('button', { name: 'Remove the filter Status: disconnected' }).waitFor();
  });

  it('says when the service does not answer, and goes on when it does', async () => {
    const page = await ctx.open('devices');
    await page.getByRole('link', { name: 'Pump', exact: true }).waitFor();
    await page.context().setOffline(true);
    await page.getByRole('link', { name: 'Hierarchy' }).click();
    await page.getByText('The service does not answer. Trying again…').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await page.context().setOffline(false);
    await page.getByRole('link', { name: 'Plant', exact: true }).waitFor();
    await page.getByText('The service does not answer.').waitFor({ state: 'detached' });
  });

  it('moves and deletes in the hierarchy, after typing the name', async () => {
    expect((await ctx.service.send('POST', '/groups/', { name: 'Hall 2', id_service: 'Cooling@demo' })).status).toBe(
      200,
    );
    const open = JSON.stringify([
      'projects/Plant@demo',
      'services/Cooling@demo',
      'groups/Hall 1@demo',
      'assets/Line 1@demo',
    ]);
    const page = await ctx.open(`hierarchy?open=${encodeURIComponent(open)}`);
    const choose = async (name: string, action: string) => {
      await page.locator('.tree').getByRole('link', { name, exact: true }).click();
      await page.getByRole('heading', { level: 2, name, exact: true }).waitFor();
      await page.locator('summary', { hasText: 'Actions' }).click();
      await press(page, action);
    };
    await choose('Pump', 'Move…');
    // a name stands for the identifier
    await field(page, 'Group').fill('Hall 2');
    await page.locator('datalist option', { hasText: 'Hall 2' }).waitFor({ state: 'attached' });
    await field(page, 'Group').blur();
    await expectSoon(() => field(page, 'Group').inputValue(), 'Hall 2@demo');
    await press(page, 'Save');
    await page.getByText('Saved Pump.').waitFor();
    expect(await show('/devices/Pump@demo/')).toMatchObject({ id_group: 'Hall 2@demo' });
    await choose('Hall 2', 'Delete…');
    const dialog = page.getByRole('dialog', { name: 'Delete group' });
    await dialog.getByLabel('What is deleted').getByText('Devices').waitFor();
    await expectSoon(() => dialog.getByRole('button', { name: 'Delete' }).isDisabled(), true);
    await dialog.getByLabel('Type the name to confirm').fill('Hall 2');
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await page.getByText('Deleted Hall 2.').waitFor();
    await dialog.waitFor({ state: 'detached' });
    expect((await ctx.service.send('GET', '/devices/Pump@demo/')).status).toBe(404);
  });

  it('is led back to the sign-in when the key is revoked elsewhere', async () => {
    const admin = await ctx.open('apikeys');
    await press(admin, 'New key');
    const form = admin.getByRole('dialog', { name: 'New key' });
    await form.getByLabel('Username (required)').fill('bob');
    await form.getByLabel('Scope (required)').selectOption('read');
    await form.getByRole('button', { name: 'Create' }).click();
    const shown = admin.getByRole('dialog', { name: 'The new key' });
    const key = (await shown.locator('pre').textContent()) ?? '';
    await shown.getByRole('button', { name: 'Close' }).click();

    const page = await ctx.openNewTab('', key);
    await waitForView(page);
    expect(await page.getByRole('link', { name: 'API keys' }).count()).toBe(0);
    await page.getByRole('link', { name: 'Hierarchy' }).click();
    await page.getByRole('link', { name: 'Projects' }).click();
    await title(page, 'Projects');
    expect(await page.getByRole('link', { name: 'New project' }).count()).toBe(0);

    await admin.getByRole('row', { name: 'bob' }).getByRole('button').click();
    await admin.getByRole('button', { name: 'Revoke', exact: true }).click();
    await admin.getByText('The key is revoked.').waitFor();
    await page.getByRole('link', { name: 'Devices' }).first().click();
    await page.getByText('The key is no longer valid: it was revoked or has expired.').waitFor();
    await title(page, 'Sign in');
  });

  it('is signed out in every tab when revoking the own key', async () => {
    const reply = await ctx.service.send('POST', '/apikeys/', { username: 'carol', scope: 'admin' });
    const { key } = reply.body.details;
    const [page, other] = await Promise.all([ctx.openNewTab('devices', key), ctx.openNewTab('apikeys', key)]);
    await title(page, 'Devices');
    await other.getByRole('row', { name: 'carol' }).getByRole('button').click();
    await other.getByRole('button', { name: 'Revoke', exact: true }).click();
    await title(other, 'Sign in');
    await page.getByRole('link', { name: 'Models' }).click();
    await title(page, 'Sign in');
    await page.getByText('The key is no longer valid: it was revoked or has expired.').waitFor();
  });

  it.each([
    [{ scope: 'stream' }, 'A key for sending', 'This key is for devices and programs that send streams'],
    [{ scope: 'device', id_device: 'Fan@demo' }, 'A key of a device', 'This key is for the device Fan@demo'],
  ])('tells a key with %j what it is for, and shows no view that would fail', async (limit, heading, text) => {
    await ctx.service.send('POST', '/devices/', { name: 'Fan', type: 'fan', id_group: 'Hall 1@demo' });
    const reply = await ctx.service.send('POST', '/apikeys/', { username: 'pump', ...limit });
    const page = await ctx.openNewTab('devices', reply.body.details.key);
    await title(page, heading);
    await page.getByText(text).waitFor();
    expect(await page.getByRole('navigation').count()).toBe(0);
    expect(await findAxeViolations(page)).toEqual([]);
    await press(page, 'Use another key');
    await title(page, 'Sign in');
  });

  it('sees the first view soon, with an empty cache', async () => {
    const page = await ctx.openNewTab('projects');
    await page.getByRole('link', { name: 'Plant', exact: true }).waitFor();
    const { loaded_ms, bytes } = (await page.evaluate(`({
      loaded_ms: Math.round(performance.now()),
      bytes: performance.getEntriesByType('resource').filter(({ name }) => name.includes('/console/')).reduce((sum, { transferSize }) => sum + transferSize, 0),
    })`)) as { loaded_ms: number; bytes: number };
    console.info(`first list after ${loaded_ms} ms, ${Math.round(bytes / 1024)} KiB`);
    expect(bytes).toBeLessThan(160 * 1024);
  });
});
