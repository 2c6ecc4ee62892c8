import { existsSync } from 'node:fs';
import type { Page } from 'playwright-core';

/** Path of an installed Chromium, if there is one. */
export const chromiumPath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(
  existsSync,
);

/** For a browser that sends nothing but the requests of its pages. */
export const chromiumFlags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

const statuses = ['ok', 'ok', 'ok', 'no_data', 'disconnected'];

/**
 * Answers the requests of a page for lists of devices with `total` of them, spread over the world, every hundredth with an
 * alarm: to store 100,000 takes minutes.
 */
export async function mockPlacedDevices(page: Page, total: number): Promise<void> {
  const alarms = { info: 0, warning: 1, critical: 0 };
  const place = (index: number) => ({
    id_developer: `d${index}@demo`,
    name: `d${index}`,
    status: statuses[index % statuses.length],
    lon: -170 + ((index * 7919) % 34_000) / 100,
    lat: -55 + ((index * 104_729) % 12_000) / 100,
  });
  await page.route(/\/devices\/\?/, (route) => {
    const { searchParams } = new URL(route.request().url());
    const [offset, max] = [Number(searchParams.get('offset')), Number(searchParams.get('max'))];
    const isAlarmed = searchParams.has('alarm');
    const total_documents = isAlarmed ? Math.floor(total / 100) : total;
    const length = Math.max(0, Math.min(max, total_documents - offset));
    const alarmed = (index: number) => ({ id_developer: `d${index * 100}@demo`, alarms });
    const result = Array.from({ length }, (_, index) => (isAlarmed ? alarmed : place)(offset + index));
    return route.fulfill({ json: { total_documents, result } });
  });
}

/** Begins to note the times between the frames of a page. */
export async function recordFrames(page: Page): Promise<void> {
  await page.evaluate(`{
    window.frames_ms = [];
    let last = performance.now();
    const note = (now) => { frames_ms.push(now - last); last = now; requestAnimationFrame(note); };
    requestAnimationFrame(note);
  }`);
}

/** Returns the longest time between two frames since `recordFrames`, in milliseconds. */
export async function readLongestFrame_ms(page: Page): Promise<number> {
  return Number(await page.evaluate('Math.round(Math.max(...frames_ms))'));
}

/** Moves a map to and fro by dragging in so many steps, and closer by the wheel. */
export async function panMap(page: Page, steps: number): Promise<void> {
  for (const [from, to] of [
    [800, 400],
    [400, 800],
  ] as const) {
    await page.mouse.move(from, 600);
    await page.mouse.down();
    await page.mouse.move(to, 500, { steps });
    await page.mouse.up();
    await page.mouse.wheel(0, -200);
  }
}
