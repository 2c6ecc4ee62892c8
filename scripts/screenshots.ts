import { mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { type Client, createClient } from './bench/data.js';
import { withDemo } from './support/demo.js';

/**
 * Makes the pictures of the console in docs/images/ from the demo's fleet:
 *
 *   npm run screenshots
 */
const folder = 'docs/images';
const fleet_size = 600;
/** One device in so many stays silent. */
const silent_every = 9;
const late_devices = 12;
const max_attempts = 120;
const streams_per_device = 120;
const stream_period_s = 720;

await withDemo(fleet_size, async ({ instance: { url, key }, browser }) => {
  const client = createClient(url, key);
  const ids = await listDevices(client);
  await shortenPeriods(client, ids.slice(-late_devices));
  await sendStreams(client, ids);
  const page = await browser.newPage({
    baseURL: `${url}/console/`,
    viewport: { width: 1280, height: 860 },
    locale: 'en-GB',
    timezoneId: 'Europe/Madrid',
  });
  await page.addInitScript(`sessionStorage['device-platform.apikey'] = ${JSON.stringify(key)}`);
  await waitForLateDevices(client);
  mkdirSync(folder, { recursive: true });
  await capture(page, '', 'overview');
  await capture(page, `devices/${encodeURIComponent(ids[2] ?? '')}`, 'device');
});

async function listDevices(client: Client): Promise<string[]> {
  const { result } = await client.send('GET', `/devices/?enabled=true&max=${fleet_size}`);
  return (result as { id_developer: string }[]).map(({ id_developer }) => id_developer);
}

/** Lets devices send a day of measurements; of every few devices one sends no status, and one nothing at all. */
async function sendStreams(client: Client, ids: readonly string[]): Promise<void> {
  const now_s = Math.floor(Date.now() / 1000);
  for (const [index, device] of ids.entries()) {
    if (index % silent_every === 0) continue;
    const hasHistory = index < 3;
    const streams = Array.from({ length: hasHistory ? streams_per_device : 1 }, (_, step) => ({
      at: now_s - step * stream_period_s,
      data: measure(index, step),
    }));
    await client.send('POST', `/devices/${encodeURIComponent(device)}/streams/`, streams);
    if (index % silent_every > 1) await client.send('POST', '/status/', [{ device, data: { battery: 90 } }]);
  }
}

function measure(index: number, step: number): Record<string, number> {
  const round = (value: number) => Math.round(value * 10) / 10;
  const day = (2 * Math.PI * step * stream_period_s) / 86_400;
  return {
    temperature: round(17 + (index % 11) + 6 * Math.cos(day) + Math.sin(step * 1.7)),
    humidity: round(62 - 14 * Math.cos(day) + 2 * Math.sin(step * 2.3)),
    wind: round(9 + 5 * Math.sin(step / 9) + 2 * Math.cos(step * 3.1)),
  };
}

/** Makes devices late a minute after their last stream. */
async function shortenPeriods(client: Client, ids: readonly string[]): Promise<void> {
  for (const id of ids) await client.send('PUT', `/devices/${encodeURIComponent(id)}/`, { frequency_stream: 1 });
}

async function waitForLateDevices(client: Client): Promise<void> {
  for (let attempt = 0; attempt < max_attempts; attempt++) {
    const { total_documents } = await client.send('GET', '/devices/?status=no_data&max=1');
    if (Number(total_documents) >= late_devices / 2) return;
    await sleep(1000);
  }
}

async function capture(page: Page, path: string, name: string): Promise<void> {
  // a live feed keeps the network busy; the map and the chart come last
  await page.goto(path, { waitUntil: 'load' });
  await page.waitForSelector('canvas');
  await page.waitForSelector('.loading', { state: 'detached' });
  await page.screenshot({ path: `${folder}/${name}.png` });
}
