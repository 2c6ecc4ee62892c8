import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { afterAll, afterEach, beforeAll, describe, expect } from '@jest/globals';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { findFreePort, openSandbox, type RunningService, type Sandbox } from './process.js';

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** A suite in a real browser; skipped, under its name and the reason, where none is installed. */
export function describeInBrowser(name: string, suite: () => void): void {
  if (executablePath === undefined) describe.skip(`${name} (not installed: chromium)`, suite);
  else describe(name, suite);
}

/** Shorter than a test may take, so that the step that hangs is named. */
const step_limit_ms = 15_000;

interface TabOptions {
  /** Key to be signed in with; default: the administrator's; null: signed out. */
  key?: string | null;
  scheme?: 'light' | 'dark';
  width?: number;
}

/** The service in a process of its own, and a browser. */
export interface ConsoleContext {
  service: RunningService;
  mqtt_port: number;
  /** Opens a path below /console/ in a new tab that shares nothing with the others. */
  open(path: string, options?: TabOptions): Promise<Page>;
}

/**
 * Starts service and browser before the tests of a suite. After each test it asserts that no page has sent a request to
 * another origin, violated the policy, thrown, or written an error to the log, other than that a request has failed.
 */
export function useConsole(): ConsoleContext {
  const ctx = {} as ConsoleContext;
  const problems: string[] = [];
  let sandbox: Sandbox;
  let browser: Browser;
  let tabs: BrowserContext[] = [];

  beforeAll(async () => {
    sandbox = await openSandbox();
    const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
    uri.pathname = `/console-${process.pid}-${Date.now()}`;
    ctx.mqtt_port = await findFreePort();
    const settings = {
      MONGODB_URI: uri.href,
      SECRET_KEY: 'a key that only tests have',
      BOOTSTRAP_API_KEY: 'console-test-key',
      WEBHOOK_ALLOW_NETS: '127.0.0.0/8',
    };
    [ctx.service, browser] = await Promise.all([
      sandbox.service({ ...settings, MQTT_PORT: String(ctx.mqtt_port) }),
      chromium.launch({ executablePath: executablePath ?? '', args: flags }),
    ]);
  }, 60_000);

  afterEach(async () => {
    await Promise.all(tabs.map((tab) => tab.close()));
    tabs = [];
    expect(problems.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await browser?.close();
    await sandbox.close();
  });

  ctx.open = async (path, { key = ctx.service.key, scheme = 'light', width = 1280 } = {}) => {
    const tab = await browser.newContext({
      viewport: { width, height: 900 },
      colorScheme: scheme,
      locale: 'en-GB',
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    tab.setDefaultTimeout(step_limit_ms);
    tabs.push(tab);
    const page = await tab.newPage();
    watch(page, ctx.service.url, problems);
    if (key !== null) await page.addInitScript(`sessionStorage['device-platform.apikey'] ??= ${JSON.stringify(key)}`);
    await page.goto(`${ctx.service.url}/console/${path}`);
    return page;
  };
  return ctx;
}

function watch(page: Page, origin: string, problems: string[]): void {
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(`${origin}/`) && !url.startsWith('data:') && !url.startsWith('blob:'))
      problems.push(`request: ${url}`);
  });
  page.on('pageerror', (error) => problems.push(`thrown: ${error.message}`));
  page.on('dialog', (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('console', (message) => {
    const isAnswer =
      /^Failed to load resource: (?:the server responded with a status of 4|net::ERR_INTERNET_DISCONNECTED)/.test(
        message.text(),
      );
    if (message.type() === 'error' && !isAnswer) problems.push(`log: ${message.text()}`);
  });
}

/** Runs axe on what the page shows. @returns rules that are violated, with the elements */
export async function findAxeViolations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const { violations } = (await page.evaluate('axe.run(document)')) as {
    violations: { id: string; nodes: { html: string; failureSummary: string }[] }[];
  };
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  );
}

/** Waits until the view is complete: its title is there, and nothing is being read. */
export async function waitForView(page: Page): Promise<void> {
  await page.waitForSelector('h1');
  await page.waitForSelector('.loading', { state: 'detached' });
}
