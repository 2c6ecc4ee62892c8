import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, it } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInBrowser, findAxeViolations, findOverflows, useConsole, waitForView } from '../../support/browser.js';

/** Sets `xss` if it is ever interpreted. 50 characters, as long as a name may be. */
const hostile = `"'><img src=x onerror=xss=1><b>{{7*7}}</b>`;
/** A file name cannot hold `/`. */
const file_name = '<img src=x onerror=xss=1>.csv';
const awkward = '50% of a/b?c#d $id .. +&=;:@e';

describeInBrowser('every view', () => {
  const ctx = useConsole();
  const ids: Record<string, string> = {};

  async function create(path: string, body: object): Promise<string> {
    const reply = await ctx.service.send('POST', path, body);
    expect([reply.status, reply.body.code]).toEqual([expect.any(Number), 2001]);
    return decodeURIComponent(reply.headers.location?.split('/').at(-2) ?? '');
  }

  beforeAll(async () => {
    const texts = { name: hostile, description: hostile };
    ids.project = await create('/projects/', { ...texts, id_customer: hostile });
    ids.service = await create('/services/', { ...texts, id_project: ids.project });
    ids.group = await create('/groups/', { ...texts, id_service: ids.service });
    ids.asset = await create('/assets/', { ...texts, id_group: ids.group, properties: { [hostile]: hostile } });
    ids.model = await create('/models/', { ...texts, properties: { [hostile]: hostile, colour: 'red' } });
    const device = {
      ...texts,
      type: hostile,
      sensor: hostile,
      firmware: hostile,
      id_model: ids.model,
      properties: { own: hostile },
      lon: 2.3,
      lat: 48.8,
      networking: { type: 'gprs', sim_card: '893407110012345678', carrier: hostile },
    };
    ids.device = await create('/devices/', { ...device, id_group: ids.group });
    ids.awkward = await create('/devices/', { type: 'pump', name: awkward, id_asset: ids.asset });
    const path = `/devices/${encodeURIComponent(ids.device)}`;
    const conditions = [{ path: `/${hostile.replaceAll('/', '~1')}`, op: '>', value: 0 }];
    ids.rule = await create('/alarmrules/', { ...texts, severity: 'critical', conditions });
    const streams = [{ data: { [hostile]: 1, nested: { [hostile]: 2 }, text: hostile }, protocol: hostile }];
    expect((await ctx.service.send('POST', `${path}/streams/`, streams)).body.code).toBe(2001);
    const [alarm] = (await ctx.service.send('GET', '/alarms/')).body.result;
    expect((await ctx.service.send('PUT', `/alarms/${alarm.id}/`, { note: hostile })).body.code).toBe(2005);
    await create(`${path}/commands/`, { name: hostile, data: { [hostile]: hostile } });
    expect((await ctx.service.send('PATCH', `${path}/state/`, { [hostile]: hostile })).body.code).toBe(2005);
    const file = Buffer.from(hostile).toString('base64');
    const config = { name: '<img src=x onerror=xss=1>', version: '"><b>', file };
    expect((await ctx.service.send('POST', `${path}/deviceconfigs/`, config)).status).toBe(201);
    const desired = `${path}/deviceconfigs/${encodeURIComponent(config.name)}/desired/`;
    expect((await ctx.service.send('PUT', desired, { version: config.version })).body.code).toBe(2005);
    await create('/apikeys/', { username: 'alice', scope: 'read', description: hostile });
    const topic = { name: hostile.replaceAll('+', '').replaceAll('#', '') };
    const topics = `/mqttdevices/${encodeURIComponent(ids.device)}/topics/`;
    expect((await ctx.service.send('POST', topics, topic)).body.code).toBe(2001);
    const webhook = { ...texts, url: `http://127.0.0.1:9/?${encodeURIComponent(hostile)}`, types: ['*'] };
    await create('/webhooks/', webhook);
    const [created] = (await ctx.service.send('GET', '/webhooks/')).body.result;
    ids.webhook = created.id_developer;
    await ctx.service.send('POST', `/webhooks/${encodeURIComponent(created.id_developer)}/test/`);
    mkdirSync(ctx.storage_folder, { recursive: true });
    writeFileSync(join(ctx.storage_folder, file_name), hostile);
    const linked = await ctx.service.send('PUT', '/external/local/user/alice/', { path: '' });
    expect(linked.status).toBe(200);
  });

  const pathOf = (plural: string, id: string) => `${plural}/${encodeURIComponent(ids[id] ?? '')}`;
  /** Address of each view, and a text of the objects above that it must show as text. */
  const views: [name: string, path: () => string, shown?: string][] = [
    ['overview', () => ''],
    ['hierarchy', () => `hierarchy?open=${encodeURIComponent(JSON.stringify([`projects/${ids.project}`]))}`, hostile],
    ['object chosen in the hierarchy', () => `hierarchy?at=${encodeURIComponent(`groups/${ids.group}`)}`, hostile],
    ['map', () => 'map'],
    ['projects', () => 'projects', hostile],
    ['services', () => 'services', hostile],
    ['groups', () => 'groups', hostile],
    ['assets', () => 'assets', hostile],
    ['devices', () => 'devices?columns=name,description,type,properties,networking,status', hostile],
    ['models', () => 'models', hostile],
    ['streams', () => 'streams', hostile],
    ['open alarms', () => 'alarms', hostile],
    ['all alarms', () => 'alarms?tab=all', hostile],
    ['alarm rules', () => 'alarmrules', hostile],
    ['alarm rule', () => pathOf('alarmrules', 'rule'), hostile],
    ['edit form of an alarm rule', () => `${pathOf('alarmrules', 'rule')}?tab=edit`, 'Condition 1'],
    ['alarms of a device', () => `${pathOf('devices', 'device')}?tab=alarms`, hostile],
    ['a filter', () => `devices?description=${encodeURIComponent(hostile)}`, hostile],
    ['new device', () => 'devices/new'],
    ['project', () => pathOf('projects', 'project'), hostile],
    ['service', () => pathOf('services', 'service'), hostile],
    ['group', () => pathOf('groups', 'group'), hostile],
    ['asset', () => pathOf('assets', 'asset'), hostile],
    ['model', () => pathOf('models', 'model'), hostile],
    ['device', () => pathOf('devices', 'device'), hostile],
    ['device with an awkward name', () => pathOf('devices', 'awkward'), awkward],
    ['connecting a device', () => `${pathOf('devices', 'device')}?tab=connect`, 'mosquitto_pub'],
    ['streams of a device', () => `${pathOf('devices', 'device')}?tab=streams`, hostile],
    ['state of a device', () => `${pathOf('devices', 'device')}?tab=state`, '<img src=x onerror=xss=1>'],
    ['commands of a device', () => `${pathOf('devices', 'device')}?tab=commands`, hostile],
    ['configs of a device', () => `${pathOf('devices', 'device')}?tab=configs`, '<img src=x onerror=xss=1>'],
    ['configs of the fleet', () => 'configs', '<img src=x onerror=xss=1>'],
    ['MQTT of a device', () => `${pathOf('devices', 'device')}?tab=mqtt`, hostile],
    ['edit form', () => `${pathOf('devices', 'device')}?tab=edit`, hostile],
    ['danger zone', () => `${pathOf('devices', 'device')}?tab=danger`, hostile],
    ['history', () => `${pathOf('devices', 'device')}?tab=history`, 'device.created'],
    ['events', () => 'events', hostile],
    ['live events', () => 'events?live=1', 'Waiting for the next event…'],
    ['webhooks', () => 'webhooks', hostile],
    ['webhook', () => pathOf('webhooks', 'webhook'), hostile],
    ['import', () => 'import'],
    ['linked storage', () => 'storage?provider=local&username=alice', file_name],
    ['API keys', () => 'apikeys', hostile],
    ['MQTT connections', () => 'connections', 'No client is connected.'],
    ['about', () => 'about'],
    ['no such page', () => 'no/such/page'],
  ];

  const rows = views.map(([name, path, shown]) => ({ name, path, shown }));

  it.each(rows)('$name: no violation in light and dark, fits every width, hostile text stays text', async (view) => {
    const page = await ctx.show(view.path());
    await waitForView(page);
    if (view.shown !== undefined) await page.getByText(view.shown).first().waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    expect(await findOverflows(page, [360, 768, 2560])).toEqual([]);
    expect(await page.evaluate('typeof xss')).toBe('undefined');
    expect(await page.locator('img[src=x], b').count()).toBe(0);
  });

  type Press = (page: Page, name: string | RegExp) => Promise<void>;
  const press: Press = (page, name) => page.getByRole('button', { name, exact: true }).first().click();
  const act: Press = async (page, name) => {
    await page.locator('summary', { hasText: 'Actions' }).click();
    await press(page, name);
  };
  /** Address of the view that opens each dialog, and what opens it. */
  const dialogs: [name: string | RegExp, path: () => string, open: (page: Page) => Promise<void>][] = [
    ['New key', () => 'apikeys', (page) => press(page, 'New key')],
    ['Acknowledge 1 alarm', () => 'alarms', (page) => press(page, /^Acknowledge…/)],
    ['Delete alarm rule', () => `${pathOf('alarmrules', 'rule')}?tab=danger`, (page) => press(page, 'Delete…')],
    ['Revoke key', () => 'apikeys', (page) => press(page, /^Revoke/)],
    ['New webhook', () => 'webhooks', (page) => press(page, 'New webhook')],
    ['Delete device', () => `${pathOf('devices', 'device')}?tab=danger`, (page) => press(page, 'Delete…')],
    ['Delete all devices that match', () => 'devices?enabled=true', (page) => act(page, 'Delete all…')],
    ['Change all devices that match', () => 'devices?enabled=true', (page) => act(page, 'Change all…')],
    [
      'Delete 1 device',
      () => 'devices',
      async (page) => {
        await page.getByRole('checkbox', { name: /^Select "/ }).check();
        await page.getByRole('region', { name: 'Selected rows' }).getByRole('button', { name: 'Delete…' }).click();
      },
    ],
    [/^Move /, () => `hierarchy?at=${encodeURIComponent(`groups/${ids.group}`)}`, (page) => act(page, 'Move…')],
  ];

  it.each(dialogs.map(([name, path, open]) => ({ name, path, open })))(
    'the dialog "$name": no violation, the focus is inside and returns, Escape closes it',
    async ({ name, path, open }) => {
      const page = await ctx.show(path());
      await waitForView(page);
      await open(page);
      const dialog = page.getByRole('dialog', { name });
      await dialog.waitFor();
      expect(await page.evaluate('document.querySelector("dialog").contains(document.activeElement)')).toBe(true);
      expect(await findAxeViolations(page)).toEqual([]);
      expect(await page.locator('img[src=x], b').count()).toBe(0);
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      expect(await page.evaluate('document.activeElement.tagName')).toMatch(/^(?:BUTTON|SUMMARY)$/);
    },
  );

  it('the sign-in: no violation in light and dark', async () => {
    const page = await ctx.openNewTab('', null);
    await waitForView(page);
    await page.getByText('The first start of the service prints one.').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
  });
});
