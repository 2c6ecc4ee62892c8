import { beforeAll, expect, it } from '@jest/globals';
import { mockPlacedDevices, panMap, readLongestFrame_ms, recordFrames } from '../../scripts/support/browser.js';
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
    await page.getByText('1 device with a place').waitFor();
    const search = Object.fromEntries(new URL(page.url()).searchParams);
    expect(Object.keys(search)).toEqual(['geo_lon', 'geo_lat', 'geo_distance']);
    expect(Number(search.geo_lat)).toBeGreaterThan(30);
    expect(Number(search.geo_lat)).toBeLessThan(50);
    await page.getByRole('link', { name: 'Open as a list' }).click();
    await page.getByRole('link', { name: 'North', exact: true }).waitFor();
    expect(await page.getByRole('link', { name: 'South', exact: true }).count()).toBe(0);
  });

  it('moves with 100,000 devices', async () => {
    const total = 100_000;
    const page = await ctx.open('about');
    await mockPlacedDevices(page, total);
    const began_at = performance.now();
    await page.getByRole('link', { name: 'Map' }).click();
    await page.getByText('100,000 devices with a place').waitFor();
    const took_ms = Math.round(performance.now() - began_at);
    await page.locator('.cluster').first().waitFor();
    await recordFrames(page);
    await panMap(page);
    expect(await page.locator('.cluster').count()).toBeGreaterThan(20);
    const max_frame_ms = await readLongestFrame_ms(page);
    console.info(`${total} devices read and clustered in ${took_ms} ms; longest frame ${max_frame_ms} ms`);
  });
});
