import { beforeAll, expect, it } from '@jest/globals';
import { describeInBrowser, useConsole } from '../support/browser.js';

describeInBrowser('the map', () => {
  const ctx = useConsole();

  beforeAll(async () => {
    for (const [path, body] of [
      ['/projects/', { name: 'Plant', id_customer: 'c-1' }],
      ['/services/', { name: 'Cooling', id_project: 'Plant@demo' }],
      ['/groups/', { name: 'Hall', id_service: 'Cooling@demo' }],
      ['/devices/', { name: 'North', type: 'pump', id_group: 'Hall@demo', lon: 10, lat: 50 }],
      ['/devices/', { name: 'South', type: 'pump', id_group: 'Hall@demo', lon: 20, lat: -30 }],
      ['/devices/', { name: 'Nowhere', type: 'pump', id_group: 'Hall@demo' }],
    ] as const)
      expect((await ctx.service.send('POST', path, body)).body.code).toBe(2001);
  });

  it('leads to a device, also by keyboard', async () => {
    const page = await ctx.open('map');
    await page.getByText('2 devices with a place').waitFor();
    await page.getByRole('button', { name: 'North' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'North' }).waitFor();
  });

  it('turns a circle drawn by hand into a filter, which the list takes over', async () => {
    const page = await ctx.open('map');
    const marker = await page.getByRole('button', { name: 'North' }).boundingBox();
    const [x, y] = [(marker?.x ?? 0) + 12, (marker?.y ?? 0) + 12];
    await page.getByRole('button', { name: 'Draw a circle' }).click();
    // beside the marker, which would take the press
    await page.mouse.move(x + 20, y + 20);
    await page.mouse.down();
    await page.mouse.move(x + 60, y + 60, { steps: 5 });
    await page.mouse.up();
    await page.getByText('1 devices with a place').waitFor();
    const search = Object.fromEntries(new URL(page.url()).searchParams);
    expect(Object.keys(search)).toEqual(['geo_lon', 'geo_lat', 'geo_distance']);
    expect(Number(search.geo_lat)).toBeGreaterThan(30);
    expect(Number(search.geo_lat)).toBeLessThan(50);
    await page.getByRole('link', { name: 'Open as a list' }).click();
    await page.getByRole('link', { name: 'North', exact: true }).waitFor();
    expect(await page.getByRole('link', { name: 'South', exact: true }).count()).toBe(0);
  });

  it('moves with 100,000 devices', async () => {
    const total_documents = 100_000;
    const statuses = ['ok', 'ok', 'ok', 'no_data', 'disconnected'];
    const place = (index: number) => ({
      id_developer: `d${index}@demo`,
      name: `d${index}`,
      status: statuses[index % statuses.length],
      lon: -170 + ((index * 7919) % 34_000) / 100,
      lat: -55 + ((index * 104_729) % 12_000) / 100,
    });
    const page = await ctx.open('about');
    // to store so many devices takes minutes; the answers are those of the interface
    await page.route(/\/devices\/\?/, (route) => {
      const { searchParams } = new URL(route.request().url());
      const [offset, max] = [Number(searchParams.get('offset')), Number(searchParams.get('max'))];
      const length = Math.max(0, Math.min(max, total_documents - offset));
      const result = Array.from({ length }, (_, index) => place(offset + index));
      return route.fulfill({ json: { total_documents, result } });
    });
    const began_at = performance.now();
    await page.getByRole('link', { name: 'Map' }).click();
    await page.getByText('100,000 devices with a place').waitFor();
    const took_ms = Math.round(performance.now() - began_at);
    await page.evaluate(`{
      window.frames_ms = [];
      let last = performance.now();
      const note = (now) => { frames_ms.push(now - last); last = now; requestAnimationFrame(note); };
      requestAnimationFrame(note);
    }`);
    for (const [from, to] of [
      [800, 400],
      [400, 800],
    ] as const) {
      await page.mouse.move(from, 600);
      await page.mouse.down();
      await page.mouse.move(to, 500, { steps: 40 });
      await page.mouse.up();
      await page.mouse.wheel(0, -200);
    }
    expect(await page.locator('.cluster').count()).toBeGreaterThan(20);
    const max_frame_ms = Number(await page.evaluate('Math.round(Math.max(...frames_ms))'));
    console.info(`${total_documents} devices read and clustered in ${took_ms} ms; longest frame ${max_frame_ms} ms`);
  });
});
