import type { Page } from 'playwright-core';
import { mockPlacedDevices, panMap, readLongestFrame_ms, recordFrames } from '../support/browser.js';
import { type Demo, withDemo } from '../support/demo.js';
import { formatTable } from './report.js';

/**
 * Measures what the console promises, with the demo's fleet in a real browser, and prints each value beside its budget:
 *
 *   npm run bench:console
 */
const fleet_size = 2000;
const map_devices = 100_000;
const long_page_rows = 1000;
const rounds = 5;

interface Measurement {
  name: string;
  budget_ms: number;
  values_ms: number[];
}

await withDemo(fleet_size, async (demo) => {
  const results = [
    await measure('first view interactive, empty cache', 2000, () => openFirstView(demo)),
    await measure('list page after the click', 500, () => openList(demo)),
    await measure(`longest frame, map of ${map_devices} devices`, 100, () => moveMap(demo)),
    await measure(`longest frame, scroll of ${long_page_rows} rows`, 100, () => scrollRows(demo)),
  ];
  console.log(formatResults(results));
});

async function measure(name: string, budget_ms: number, run: () => Promise<number>): Promise<Measurement> {
  const values_ms: number[] = [];
  for (let round = 0; round < rounds; round++) values_ms.push(await run());
  return { name, budget_ms, values_ms: values_ms.sort((one, other) => one - other) };
}

/** Runs `work` in a new tab, signed in and without anything in a cache; paths are relative to the console. */
async function inNewTab<T>({ browser, instance }: Demo, work: (page: Page) => Promise<T>): Promise<T> {
  const baseURL = `${instance.url}/console/`;
  const tab = await browser.newContext({ baseURL, viewport: { width: 1280, height: 900 } });
  try {
    const page = await tab.newPage();
    await page.addInitScript(`sessionStorage['device-platform.apikey'] = ${JSON.stringify(instance.key)}`);
    return await work(page);
  } finally {
    await tab.close();
  }
}

async function openView(page: Page, path: string): Promise<void> {
  await page.goto(path, { waitUntil: 'commit' });
  await page.waitForSelector('h1');
  await page.waitForSelector('.loading', { state: 'detached' });
}

/** Waits, frame by frame, until an expression is true; the policy of the page forbids Playwright's own function for that. */
async function awaitInPage(page: Page, condition: string): Promise<void> {
  await page.evaluate(`new Promise((resolve) => {
    const look = () => (${condition} ? resolve() : requestAnimationFrame(look));
    look();
  })`);
}

/** From the navigation to the overview with its numbers of devices. */
function openFirstView(demo: Demo): Promise<number> {
  return inNewTab(demo, async (page) => {
    await page.goto('', { waitUntil: 'commit' });
    await page.waitForSelector('.tiles');
    await awaitInPage(
      page,
      `[...document.querySelectorAll('.tiles .number')].every(({ textContent }) => textContent !== '…') &&
        document.querySelector('.tiles .number') !== null`,
    );
    return Number(await page.evaluate('Math.round(performance.now())'));
  });
}

/** From the click to the last row, looked for in every frame. */
function openList(demo: Demo): Promise<number> {
  return inNewTab(demo, async (page) => {
    await openView(page, 'about');
    await page.evaluate(
      `{ window.began_at = performance.now(); document.querySelector('a[href$="/devices"]').click(); }`,
    );
    await awaitInPage(page, `document.querySelectorAll('tbody tr').length === 50`);
    return Number(await page.evaluate('Math.round(performance.now() - began_at)'));
  });
}

function moveMap(demo: Demo): Promise<number> {
  return inNewTab(demo, async (page) => {
    await openView(page, 'about');
    await mockPlacedDevices(page, map_devices);
    await page.getByRole('link', { name: 'Map' }).click();
    await page.getByText(`${map_devices.toLocaleString('en')} devices with a place`).waitFor();
    await page.locator('.cluster').first().waitFor();
    await recordFrames(page);
    await panMap(page, 40);
    return readLongestFrame_ms(page);
  });
}

function scrollRows(demo: Demo): Promise<number> {
  return inNewTab(demo, async (page) => {
    await openView(page, `devices?max=${long_page_rows}`);
    await page.locator('tbody tr').nth(5).hover();
    await recordFrames(page);
    for (let step = 0; step < 60; step++) await page.mouse.wheel(0, 600);
    await awaitInPage(page, `document.querySelector('.table-frame').scrollTop > 10_000`);
    return readLongestFrame_ms(page);
  });
}

function formatResults(results: readonly Measurement[]): string {
  const rows = results.map(({ name, budget_ms, values_ms }) => [
    name,
    `${values_ms[Math.floor(rounds / 2)]} ms`,
    `${values_ms.at(-1)} ms`,
    `≤ ${budget_ms} ms`,
  ]);
  return formatTable([['', 'median', 'worst', 'budget'], ...rows]);
}
