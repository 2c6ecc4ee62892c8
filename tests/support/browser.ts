import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect } from '@jest/globals';
import { type Browser, chromium, type Page } from 'playwright-core';
import { chromiumFlags, chromiumPath } from '../../scripts/support/browser.js';
import { findFreePort, openSandbox, type RunningService, type Sandbox, waitFor } from './process.js';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** A suite in a real browser; skipped, under its name and the reason, where none is installed. */
export function describeInBrowser(name: string, suite: () => void): void {
  if (chromiumPath === undefined) describe.skip(`${name} (not installed: chromium)`, suite);
  else describe(name, suite);
}

/** Shorter than a test may take, so that the step that hangs is named. */
const step_limit_ms = 120_000;

interface TabOptions {
  width?: number;
  reducedMotion?: 'reduce' | 'no-preference';
}

interface DocumentedOperation {
  parameters?: { name: string; in: string }[];
  'x-path-filters'?: string[];
}

/** The operations that the interface documents, with their query parameters. */
type Documented = Record<string, Record<string, DocumentedOperation | undefined>>;

/** The service in a process of its own, and a browser with a tab in which the administrator is signed in. */
export interface ConsoleContext {
  service: RunningService;
  mqtt_port: number;
  /** Folder of local storage of the account, which does not exist yet. */
  storage_folder: string;
  /** Creates objects by one import. */
  importObjects(objects: readonly object[]): Promise<void>;
  /** Loads a path below /console/ in the tab of the suite. */
  open(path: string, options?: TabOptions): Promise<Page>;
  /** Shows a path in the tab of the suite without loading the page again, as a link does. */
  show(path: string): Promise<Page>;
  /** Loads a path in a new tab that shares nothing with the others. @param key null: signed out */
  openNewTab(path: string, key?: string | null): Promise<Page>;
  /** Loads a path in a new tab whose clock `page.clock` moves. */
  openWithClock(path: string): Promise<Page>;
}

const default_width = 1280;
const height = 900;
/** An address without a view. */
const nowhere = 'no/such/page';

/**
 * Starts service and browser before the tests of a suite. After each test it asserts that no page has sent a request to
 * another origin, or one that /openapi.json does not list with its query parameters, violated the policy, thrown, or
 * written an error to the log, other than that a request has failed.
 */
export function useConsole(): ConsoleContext {
  const ctx = {} as ConsoleContext;
  const problems: string[] = [];
  const documented: Documented = {};
  let sandbox: Sandbox;
  let browser: Browser;
  let tab: Page;
  const otherTabs: Page[] = [];
  const addressOf = (path: string) => `${ctx.service.url}/console/${path}`;

  beforeAll(async () => {
    sandbox = await openSandbox();
    const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
    uri.pathname = `/console-${process.pid}-${Date.now()}`;
    ctx.mqtt_port = await findFreePort();
    ctx.storage_folder = join(sandbox.folder, 'files/demo');
    const settings = {
      MONGODB_URI: uri.href,
      SECRET_KEY: 'a key that only tests have',
      BOOTSTRAP_API_KEY: 'console-test-key',
      WEBHOOK_ALLOW_NETS: '127.0.0.0/8',
      FILESTORE_LOCAL_ROOT: join(sandbox.folder, 'files'),
    };
    [ctx.service, browser] = await Promise.all([
      sandbox.service({ ...settings, MQTT_PORT: String(ctx.mqtt_port) }),
      chromium.launch({ executablePath: chromiumPath ?? '', args: chromiumFlags }),
    ]);
    Object.assign(documented, (await ctx.service.send('GET', '/openapi.json')).body.paths);
    tab = await newTab(ctx.service.key);
    await ctx.open('');
  });

  afterEach(async () => {
    await Promise.all(otherTabs.splice(0).map((page) => page.context().close()));
    await tab.unrouteAll({ behavior: 'ignoreErrors' });
    await tab.context().setOffline(false);
    await tab.evaluate('localStorage.clear()');
    expect(problems.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await browser?.close();
    await sandbox.close();
  });

  async function newTab(key: string | null): Promise<Page> {
    const context = await browser.newContext({
      viewport: { width: default_width, height },
      locale: 'en-GB',
      colorScheme: 'light',
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    context.setDefaultTimeout(step_limit_ms);
    const page = await context.newPage();
    watch(page, { origin: ctx.service.url, documented, problems });
    if (key !== null) await page.addInitScript(`sessionStorage['device-platform.apikey'] ??= ${JSON.stringify(key)}`);
    return page;
  }

  return Object.assign(ctx, {
    async importObjects(objects) {
      const body = objects.map((object) => JSON.stringify(object)).join('\n');
      const reply = await ctx.service.send('POST', '/import/', body, { 'Content-Type': 'application/x-ndjson' });
      expect(reply.text).toContain(`"totals":{"created":${objects.length},`);
    },
    async open(path, { width = default_width, reducedMotion = 'no-preference' } = {}) {
      await tab.setViewportSize({ width, height });
      await tab.emulateMedia({ colorScheme: 'light', reducedMotion });
      await tab.goto(addressOf(path));
      return tab;
    },
    async show(path) {
      await tab.setViewportSize({ width: default_width, height });
      const title = tab.getByRole('heading', { level: 1 });
      const isNowhere = { hasText: 'There is no such page' };
      // between two views, as both may have the same title
      for (const next of [nowhere, path]) {
        await tab.evaluate(`history.pushState({}, '', ${JSON.stringify(addressOf(next))})`);
        await title.filter(next === nowhere ? isNowhere : { hasNotText: isNowhere.hasText }).waitFor();
      }
      return tab;
    },
    async openNewTab(path, key = ctx.service.key) {
      const page = await newTab(key);
      otherTabs.push(page);
      await page.goto(addressOf(path));
      return page;
    },
    async openWithClock(path) {
      const page = await newTab(ctx.service.key);
      otherTabs.push(page);
      await page.clock.install();
      await page.goto(addressOf(path));
      return page;
    },
  } satisfies Partial<ConsoleContext>);
}

interface Watched {
  origin: string;
  documented: Documented;
  problems: string[];
}

function watch(page: Page, { origin, documented, problems }: Watched): void {
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol === 'data:' || url.protocol === 'blob:') return;
    if (url.origin !== origin) problems.push(`request to another origin: ${url}`);
    else if (!/^\/(?:(?:console|docs)\/|openapi\.json$|$)/.test(url.pathname)) {
      const unknown = findUndocumented(documented, request.method(), url);
      if (unknown !== undefined) problems.push(`not in /openapi.json: ${request.method()} ${url}: ${unknown}`);
    }
  });
  page.on('pageerror', (error) => problems.push(`thrown: ${error.message}`));
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('console', (message) => {
    const isAnswer =
      /^Failed to load resource: (?:the server responded with a status of (?:4|503)|net::ERR_INTERNET_DISCONNECTED)/.test(
        message.text(),
      );
    if (message.type() === 'error' && !isAnswer) problems.push(`log: ${message.text()}`);
  });
}

/** Returns the part of a request that the interface does not document, if there is one. */
function findUndocumented(documented: Documented, method: string, url: URL): string | undefined {
  const fits = (template: string) => {
    const pattern = template.replaceAll(/[.*+?^$()|[\]\\]/g, '\\$&').replaceAll(/\{\w+\}/g, '[^/]+');
    return new RegExp(`^${pattern}$`).test(url.pathname);
  };
  // `/events/live/` itself comes before a template that it fits
  const [template] = Object.keys(documented)
    .filter(fits)
    .sort((left, right) => left.split('{').length - right.split('{').length);
  const operation = documented[template ?? '']?.[method.toLowerCase()];
  if (operation === undefined) return 'no such operation';
  const names = operation.parameters?.filter((parameter) => parameter.in === 'query').map(({ name }) => name);
  const isPath = (name: string) => operation['x-path-filters']?.some((member) => name.startsWith(`${member}.`));
  return [...url.searchParams.keys()].find((name) => names?.includes(name) !== true && isPath(name) !== true);
}

/** The rules of axe whose results depend on colours, and so on the theme. */
const colourRules = ['color-contrast', 'link-in-text-block'];

/** Runs axe on what the page shows, in light and dark. @returns rules that are violated, with the elements */
export async function findAxeViolations(page: Page): Promise<string[]> {
  const violations: string[] = [];
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(axe);
  for (const [colorScheme, options] of [
    ['dark', { runOnly: colourRules }],
    ['light', {}],
  ] as const) {
    await page.emulateMedia({ colorScheme });
    const run = JSON.stringify({ ...options, resultTypes: ['violations'] });
    const result = (await page.evaluate(`axe.run(document, ${run})`)) as {
      violations: { id: string; nodes: { html: string; failureSummary: string }[] }[];
    };
    for (const { id, nodes } of result.violations)
      for (const { html, failureSummary } of nodes) violations.push(`${colorScheme}: ${id}: ${html} ${failureSummary}`);
  }
  return violations;
}

/** Evaluates an expression after the next frame, when what observes its own size has been drawn too. */
const awaitLayout = (expression: string) =>
  `new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(${expression}))))`;

/** Finds the widths in which the view is wider than the window. */
export async function findOverflows(page: Page, widths: readonly number[]): Promise<string[]> {
  const overflows: string[] = [];
  for (const width of widths) {
    await page.setViewportSize({ width, height });
    const overflow_px = Number(await page.evaluate(awaitLayout('document.documentElement.scrollWidth - innerWidth')));
    if (overflow_px > 0) overflows.push(`${width}: ${overflow_px}`);
  }
  return overflows;
}

/** Expects what the page shows as soon as it is drawn, which may be after the view is complete. */
export async function expectSoon<Value>(read: () => Promise<Value>, expected: Value): Promise<void> {
  const isExpected = (value: Value) => isDeepStrictEqual(value, expected);
  const shown = await waitFor(read, isExpected).catch(read);
  expect(shown).toEqual(expected);
}

/** Waits until the view is complete: its title is there, and nothing is being read. */
export async function waitForView(page: Page): Promise<void> {
  await page.waitForSelector('h1');
  await page.waitForSelector('.loading', { state: 'detached' });
}
