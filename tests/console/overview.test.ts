import { beforeAll, expect, it } from '@jest/globals';
import { describeInBrowser, findAxeViolations, useConsole, waitForView } from '../support/browser.js';
import { waitUntil } from '../support/process.js';

/** Sum of the shifts that no click or key has caused; see https://web.dev/articles/cls. */
const layout_shift = `new Promise((resolve) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) sum += value;
  }).observe({ type: 'layout-shift', buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
})`;

describeInBrowser('the overview', () => {
  const ctx = useConsole();

  async function create(path: string, body: object): Promise<void> {
    expect((await ctx.service.send('POST', path, body)).body.code).toBe(2001);
  }

  beforeAll(async () => {
    await create('/projects/', { name: 'Plant', id_customer: 'c-1' });
    await create('/services/', { name: 'Cooling', id_project: 'Plant@demo' });
    await create('/groups/', { name: 'Hall', id_service: 'Cooling@demo' });
    for (const name of ['Pump', 'Fan', 'Silent'])
      await create('/devices/', { name, type: 'pump', id_group: 'Hall@demo', lon: 2, lat: 48 });
    await create('/devices/Pump@demo/streams/', [{ data: { bar: 1, note: 'calm' } }]);
    await create('/devices/Fan@demo/streams/', [{ data: { rpm: 900 } }]);
    expect((await ctx.service.send('POST', '/status/', [{ device: 'Fan@demo', data: { battery: 90 } }])).status).toBe(
      200,
    );
    // two steps of the one, one of the other; the view asks again after a minute only
    await waitUntil(async () => {
      const { body } = await ctx.service.send('GET', '/events/?type=device.status_changed&max=1');
      return body.total_documents === 3;
    });
  });

  it('shows the devices of each status, with the change since yesterday', async () => {
    const page = await ctx.open('');
    const tile = (status: string) =>
      page.getByRole('list', { name: 'Devices by status' }).getByRole('listitem').filter({ hasText: status });
    await tile('OK').getByText('+1 since yesterday').waitFor();
    await tile('Status late').getByText('+1 since yesterday').waitFor();
    await tile('Disconnected').getByText('+1 since yesterday').waitFor();
    await tile('Data late').getByText('as yesterday').waitFor();
    await page.getByText('2 devices are late without ever having sent data or a status.').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    // the numbers of the tiles are those of the lists they lead to
    await tile('Disconnected').getByRole('link').click();
    await page.getByRole('link', { name: 'Silent', exact: true }).waitFor();
    expect(await page.locator('tbody tr').count()).toBe(1);
  });

  it('sends few requests for the first view, each of them once', async () => {
    const sent: string[] = [];
    const page = await ctx.open('about');
    page.on('request', (request) => void sent.push(request.url()));
    await page.getByRole('link', { name: 'Overview' }).click();
    await page.getByText('since yesterday').first().waitFor();
    await waitForView(page);
    const requests = sent.filter((url) => !url.includes('/console/'));
    expect(new Set(requests).size).toBe(requests.length);
    expect(requests.length).toBeLessThan(30);
  });

  it.each([
    ['overview', ''],
    ['list', 'devices'],
    ['device', 'devices/Fan%40demo'],
    ['hierarchy', 'hierarchy'],
    ['events', 'events'],
  ])('%s: nothing moves while it is being read', async (_name, path) => {
    const page = await ctx.open(path);
    await waitForView(page);
    expect(Number(await page.evaluate(layout_shift))).toBeLessThan(0.1);
  });
});
