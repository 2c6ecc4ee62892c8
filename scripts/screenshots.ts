import { mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium, type Page } from 'playwright-core';
import { runDemo } from '../src/cli/demo.js';
import { chromiumFlags, chromiumPath } from './support/browser.js';
import { startInstance } from './support/instance.js';

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

if (chromiumPath === undefined) throw new Error('no chromium is installed');
const instance = await startInstance();
const headers = { 'service.apikey': instance.key };
try {
  await runDemo({
    url: instance.url,
    key: instance.key,
    count: fleet_size,
    seed: 1,
    streams: false,
    print: () => undefined,
    showProgress: () => undefined,
  });
  const ids = await listDevices();
  await shortenPeriods(ids.slice(-late_devices));
  await sendStreams(ids);
  const browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumFlags });
  try {
    const page = await browser.newPage({
      viewport: { width: 1280, height: 860 },
      locale: 'en-GB',
      timezoneId: 'Europe/Madrid',
    });
    await page.addInitScript(`sessionStorage['device-platform.apikey'] = ${JSON.stringify(instance.key)}`);
    await waitForLateDevices();
    mkdirSync(folder, { recursive: true });
    await capture(page, '', 'overview');
    await capture(page, `devices/${encodeURIComponent(ids[2] ?? '')}`, 'device');
  } finally {
    await browser.close();
  }
} finally {
  await instance.close();
}

async function listDevices(): Promise<string[]> {
  const response = await fetch(`${instance.url}/devices/?enabled=true&max=${fleet_size}`, { headers });
  const { result } = (await response.json()) as { result: { id_developer: string }[] };
  return result.map(({ id_developer }) => id_developer);
}

/** Lets devices send a day of measurements; of every few devices one sends no status, and one nothing at all. */
async function sendStreams(ids: readonly string[]): Promise<void> {
  const now_s = Math.floor(Date.now() / 1000);
  for (const [index, device] of ids.entries()) {
    if (index % silent_every === 0) continue;
    const hasHistory = index < 3;
    const streams = Array.from({ length: hasHistory ? streams_per_device : 1 }, (_, step) => ({
      at: now_s - step * stream_period_s,
      data: measure(index, step),
    }));
    await post(`/devices/${encodeURIComponent(device)}/streams/`, streams);
    if (index % silent_every > 1) await post('/status/', [{ device, data: { battery: 90 } }]);
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

async function post(path: string, body: unknown): Promise<void> {
  const response = await fetch(instance.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
}

/** Makes devices late a minute after their last stream. */
async function shortenPeriods(ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    const body = JSON.stringify({ frequency_stream: 1 });
    const response = await fetch(`${instance.url}/devices/${encodeURIComponent(id)}/`, {
      method: 'PUT',
      headers,
      body,
    });
    if (!response.ok) throw new Error(await response.text());
  }
}

async function waitForLateDevices(): Promise<void> {
  for (let attempt = 0; attempt < max_attempts; attempt++) {
    const response = await fetch(`${instance.url}/devices/?status=no_data&max=1`, { headers });
    const { total_documents: total } = (await response.json()) as { total_documents: number };
    if (total >= late_devices / 2) return;
    await sleep(1000);
  }
}

async function capture(page: Page, path: string, name: string): Promise<void> {
  // a live feed keeps the network busy; the map and the chart come last
  await page.goto(`${instance.url}/console/${path}`, { waitUntil: 'load' });
  await page.waitForSelector('canvas');
  await page.waitForSelector('.loading', { state: 'detached' });
  await page.screenshot({ path: `${folder}/${name}.png` });
}
