import { beforeAll, expect, it } from '@jest/globals';
import type { Page } from 'playwright-core';
import { describeInBrowser, findAxeViolations, useConsole, waitForView } from '../support/browser.js';
import { waitUntil } from '../support/process.js';

describeInBrowser('the console', () => {
  const ctx = useConsole();
  const focused = (page: Page) => page.evaluate('document.activeElement.tagName + "#" + document.activeElement.id');

  beforeAll(async () => {
    for (const [path, body] of [
      ['/projects/', { name: 'Plant', id_customer: 'c-1' }],
      ['/services/', { name: 'Cooling', id_project: 'Plant@demo' }],
      ['/groups/', { name: 'Hall', id_service: 'Cooling@demo' }],
      ['/devices/', { name: 'Pump', type: 'pump', id_group: 'Hall@demo', lon: 2, lat: 48 }],
    ] as const)
      expect((await ctx.service.send('POST', path, body)).body.code).toBe(2001);
  });

  it('is used by keyboard: skip link, title after a navigation, menu, tabs, sort', async () => {
    const page = await ctx.open('');
    await waitForView(page);
    await page.locator('.skip').focus();
    await page.getByRole('link', { name: 'Skip to content' }).waitFor();
    await page.keyboard.press('Enter');
    expect(await focused(page)).toBe('MAIN#main');
    await page.getByRole('link', { name: 'Devices' }).first().focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    expect(await focused(page)).toMatch(/^H1/);
    await page.getByRole('button', { name: 'Name', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('columnheader', { name: 'Name' }).and(page.locator('[aria-sort=ascending]')).waitFor();
    await page.getByRole('link', { name: 'Pump', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Pump' }).waitFor();
    await page.getByRole('button', { name: 'Edit' }).focus();
    await page.keyboard.press('Space');
    await page.getByLabel('Firmware').waitFor();
  });

  it('opens its menu on a narrow screen, and closes it with the next view', async () => {
    const page = await ctx.open('', { width: 360 });
    await waitForView(page);
    const menu = page.getByRole('button', { name: 'Menu' });
    await menu.click();
    expect(await findAxeViolations(page)).toEqual([]);
    await page.getByRole('link', { name: 'Groups' }).first().click();
    await page.getByRole('heading', { level: 1, name: 'Groups' }).waitFor();
    expect(await menu.getAttribute('aria-expanded')).toBe('false');
  });

  it('moves nothing by itself if the system asks for less motion', async () => {
    const page = await ctx.open('map', { reducedMotion: 'reduce' });
    await page.getByText('1 device with a place').waitFor();
    expect(await page.locator('.leaflet-zoom-anim, .leaflet-fade-anim').count()).toBe(0);
    expect(await page.evaluate('document.getAnimations().length')).toBe(0);
  });

  it.each([
    [5031, 'the database does not answer', 'The database does not answer.'],
    [5033, 'overloaded', 'The service is overloaded.'],
  ])('says that requests fail with %s, repeats them, and goes on', async (code, message, words) => {
    const page = await ctx.open('');
    await waitForView(page);
    let count = 0;
    await page.route(/\/groups\/\?/, (route) => {
      count++;
      return route.fulfill({ status: 503, headers: { 'Retry-After': '1' }, json: { code, message, details: {} } });
    });
    await page.getByRole('link', { name: 'Groups' }).first().click();
    const banner = page.getByRole('alert').filter({ hasText: `${words} Trying again…` });
    await banner.waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await waitUntil(() => count > 1);
    await page.unroute(/\/groups\/\?/);
    await banner.getByRole('button', { name: 'Try now' }).click();
    await page.getByRole('link', { name: 'Hall', exact: true }).waitFor();
    await banner.waitFor({ state: 'detached' });
  });

  it('keeps what was typed when saving fails, and saves it when asked again', async () => {
    const page = await ctx.open('devices/Pump%40demo?tab=edit');
    await page.getByLabel('Firmware').fill('3.1');
    await page.route(/\/devices\/Pump%40demo\/$/, (route) =>
      route.request().method() === 'PUT'
        ? route.fulfill({ status: 503, json: { code: 5033, message: 'overloaded', details: {} } })
        : route.continue(),
    );
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('alert').getByText('The service is overloaded.').waitFor();
    expect(await page.getByLabel('Firmware').inputValue()).toBe('3.1');
    await page.unroute(/\/devices\/Pump%40demo\/$/);
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved Pump.').waitFor();
    expect((await ctx.service.send('GET', '/devices/Pump@demo/')).body).toMatchObject({ firmware: '3.1' });
  });

  it('follows the colours that are chosen, also in what is drawn', async () => {
    const page = await ctx.open('devices/Pump%40demo');
    await waitForView(page);
    await page.getByRole('combobox', { name: 'Colours' }).selectOption('Dark');
    expect(await page.evaluate('getComputedStyle(document.documentElement).colorScheme')).toBe('dark');
    await page.reload();
    await waitForView(page);
    expect(await page.evaluate('getComputedStyle(document.documentElement).colorScheme')).toBe('dark');
  });
});
