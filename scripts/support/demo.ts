import { type Browser, chromium } from 'playwright-core';
import { runDemo } from '../../demo/demo.js';
import { chromiumFlags, chromiumPath } from './browser.js';
import { type Instance, startInstance } from './instance.js';

/** An instance with a fleet of the demo, and a browser. */
export interface Demo {
  instance: Instance;
  browser: Browser;
}

/** Runs `work` with `count` devices of the demo, without streams, and closes all. @throws Error if no Chromium is installed */
export async function withDemo(count: number, work: (demo: Demo) => Promise<void>): Promise<void> {
  if (chromiumPath === undefined) throw new Error('no chromium is installed');
  const instance = await startInstance();
  try {
    const { url, key } = instance;
    const silent = { print: () => undefined, showProgress: () => undefined };
    await runDemo({ url, key, count, seed: 1, streams: false, ...silent });
    const browser = await chromium.launch({ executablePath: chromiumPath, args: chromiumFlags });
    try {
      await work({ instance, browser });
    } finally {
      await browser.close();
    }
  } finally {
    await instance.close();
  }
}
