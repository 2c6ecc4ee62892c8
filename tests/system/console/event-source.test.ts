import { existsSync } from 'node:fs';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';
import { createKey } from '../../support/sse.js';

const ctx = await useTestService();
const executablePath = '/usr/bin/chromium';
const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'];

/** The part of playwright-core that the test uses; the package is optional. */
interface Browser {
  newPage(): Promise<{ goto(url: string): Promise<unknown>; evaluate<Result>(script: string): Promise<Result> }>;
  close(): Promise<void>;
}

async function launch(): Promise<Browser | undefined> {
  if (!existsSync(executablePath)) return undefined;
  const name = 'playwright-core';
  const { chromium } = await import(name).catch(() => ({ chromium: undefined }));
  return chromium?.launch({ executablePath, args: flags });
}

/** Serves an empty page, and passes everything else on with the key, which an EventSource cannot send. */
async function startProxy(target: string, key: string): Promise<{ url: string; cut(): void; close(): void }> {
  const open = new Set<() => void>();
  const server = createServer((incoming, response) => {
    if (incoming.url === '/') {
      response.setHeader('Content-Type', 'text/html').end('<!doctype html>');
      return;
    }
    const headers = { ...incoming.headers, 'service.apikey': key };
    const outgoing = request(new URL(incoming.url ?? '', target), { headers }, (reply) => {
      response.writeHead(reply.statusCode ?? 0, reply.headers);
      reply.pipe(response);
    }).end();
    open.add(() => outgoing.destroy());
    outgoing.on('error', () => undefined);
    response.once('close', () => outgoing.destroy());
    open.add(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    cut() {
      for (const end of open) end();
      open.clear();
    },
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

it('is parsed by a browser, which resumes by itself when the connection breaks', async () => {
  const browser = await launch();
  if (browser === undefined) {
    console.warn('not installed, skipped: chromium with playwright-core');
    return;
  }
  const { service, api, fixtures } = ctx;
  const device = await fixtures.device();
  const { key } = await createKey(service);
  const proxy = await startProxy(service.url, key);
  const path = pathOf('devices', device, 'streams');
  const send = async (n: number) =>
    expect((await api.post(path, { data: { n, text: `line\nbreak \u2028 é ${n}` } })).body.code).toBe(2001);
  try {
    const page = await browser.newPage();
    await page.goto(proxy.url);
    await page.evaluate(`new Promise((resolve) => {
      window.received = [];
      window.openings = 0;
      window.source = new EventSource('${path}live/');
      window.source.onopen = () => { window.openings++; resolve(); };
      window.source.addEventListener('stream', ({ data, lastEventId }) =>
        window.received.push({ ...JSON.parse(data).data, lastEventId }));
    })`);
    const received = (count: number) =>
      page.evaluate<{ n: number; text: string; lastEventId: string }[]>(`new Promise((resolve) => {
        const look = () => window.received.length >= ${count} ? resolve(window.received) : setTimeout(look, 20);
        look();
      })`);
    await send(0);
    await received(1);
    for (let n = 1; n <= 5; n++) {
      proxy.cut();
      // while the browser waits to connect again
      await send(n);
    }
    const messages = await received(6);
    expect(messages.map(({ n, text }) => [n, text])).toEqual(
      [0, 1, 2, 3, 4, 5].map((n) => [n, `line\nbreak \u2028 é ${n}`]),
    );
    expect(messages.map(({ lastEventId }) => lastEventId)).toEqual(
      messages.map(({ lastEventId }) => lastEventId).sort(),
    );
    expect(await page.evaluate<number>('window.openings')).toBeGreaterThan(1);
  } finally {
    await browser.close();
    proxy.close();
  }
});
