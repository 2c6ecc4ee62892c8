import { type Browser, chromium, type Page } from 'playwright-core';
import { runDemo } from '../../src/cli/demo.js';
import {
  chromiumFlags,
  chromiumPath,
  mockPlacedDevices,
  panMap,
  readLongestFrame_ms,
  recordFrames,
} from '../support/browser.js';
import { type Instance, startInstance } from '../support/instance.js';
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

if (chromiumPath === undefined) throw new Error('no chromium is installed');
const instance = await startInstance();
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
  const browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumFlags });
  try {
    const results = [
      await measure('first view interactive, empty cache', 2000, () => openFirstView(browser)),
      await measure('list page after the click', 500, () => openList(browser)),
      await measure(`longest frame, map of ${map_devices} devices`, 100, () => moveMap(browser)),
      await measure(`longest frame, scroll of ${long_page_rows} rows`, 100, () => scrollRows(browser)),
    ];
    console.log(formatResults(results));
  } finally {
    await browser.close();
  }
} finally {
  await instance.close();
}

async function measure(name: string, budget_ms: number, run: () => Promise<number>): Promise<Measurement> {
  const values_ms: number[] = [];
  for (let round = 0; round < rounds; round++) values_ms.push(await run());
  return { name, budget_ms, values_ms: values_ms.sort((one, other) => one - other) };
}

/** Runs `work` in a new tab, signed in and without anything in a cache. */
async function inNewTab<T>(browser: Browser, { key }: Instance, work: (page: Page) => Promise<T>): Promise<T> {
  const tab = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  try {
    const page = await tab.newPage();
    await page.addInitScript(`sessionStorage['device-platform.apikey'] = ${JSON.stringify(key)}`);
    return await work(page);
  } finally {
    await tab.close();
  }
}

async function openView(page: Page, path: string): Promise<void> {
  await page.goto(`${instance.url}/console/${path}`, { waitUntil: 'commit' });
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

/** From the navigation to the overview with all of its numbers. */
function openFirstView(browser: Browser): Promise<number> {
  return inNewTab(browser, instance, async (page) => {
    await page.goto(`${instance.url}/console/`, { waitUntil: 'commit' });
    await page.waitForSelector('.tiles');
    await awaitInPage(
      page,
      `document.querySelectorAll('.tile .number').length === 5 && !document.querySelector('.tiles').textContent.includes('…')`,
    );
    return Number(await page.evaluate('Math.round(performance.now())'));
  });
}

/** From the click to the last row, looked for in every frame. */
function openList(browser: Browser): Promise<number> {
  return inNewTab(browser, instance, async (page) => {
    await openView(page, 'about');
    await page.evaluate(
      `{ window.began_at = performance.now(); document.querySelector('a[href$="/devices"]').click(); }`,
    );
    await awaitInPage(page, `document.querySelectorAll('tbody tr').length === 50`);
    return Number(await page.evaluate('Math.round(performance.now() - began_at)'));
  });
}

function moveMap(browser: Browser): Promise<number> {
  return inNewTab(browser, instance, async (page) => {
    await openView(page, 'about');
    await mockPlacedDevices(page, map_devices);
    await page.getByRole('link', { name: 'Map' }).click();
    await page.getByText(`${map_devices.toLocaleString('en')} devices with a place`).waitFor();
    await page.locator('.cluster').first().waitFor();
    await recordFrames(page);
    await panMap(page);
    return readLongestFrame_ms(page);
  });
}

function scrollRows(browser: Browser): Promise<number> {
  return inNewTab(browser, instance, async (page) => {
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
