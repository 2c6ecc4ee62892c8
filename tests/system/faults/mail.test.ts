import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, it } from '@jest/globals';
import { parseSmtpServer } from '../../../src/lib/server-addresses.js';
import { waitUntil } from '../../support/process.js';
import { startReceiver } from '../../support/receiver.js';
import { startTestService } from '../../support/service.js';

it('a server that talks for ever, or not at all, holds up nobody else', async () => {
  let isTalking = true;
  const hostile = createServer((socket) => {
    const talk = () => {
      while (isTalking && socket.write(`220-${'x'.repeat(1000)}\r\n`));
    };
    socket.on('error', () => undefined).on('drain', talk);
    talk();
  }).listen(0, '127.0.0.1');
  await once(hostile, 'listening');
  const url = `smtp://127.0.0.1:${(hostile.address() as AddressInfo).port}`;
  const service = await startTestService({
    ...({ eventLog: true, deliver: true } as const),
    webhook_allow_nets: ['127.0.0.0/8'],
    smtp_from: { name: 'Alarms', address: 'alarms@example.com' },
    smtp_url: parseSmtpServer(url),
  });
  const receiver = await startReceiver();
  try {
    const [noisy, other] = [await service.client({ account: 'noisy' }), await service.client()];
    const hook = { url: 'mailto:a@example.com', types: ['project.'] };
    const names = Array.from({ length: 20 }, (_, index) => `mail ${index}`);
    await Promise.all(names.map((name) => noisy.post('/webhooks/', { ...hook, name })));
    const tested = await noisy.post('/webhooks/mail%200%40noisy/test/');
    expect(tested.body.details.error).toMatch(/^the mail server /);
    isTalking = false;
    const waiting = noisy.post('/webhooks/mail%201%40noisy/test/');
    await other.post('/webhooks/', { name: 'mine', url: receiver.url, types: ['project.'] });
    for (const api of [noisy, other]) await api.post('/projects/', { name: 'new', id_customer: 'c' });
    await waitUntil(() => receiver.received.length === 1);
    expect((await waiting).body.details.error).toBe('the mail server did not answer in time');
  } finally {
    await Promise.all([service.stop(), receiver.close()]);
    hostile.close();
  }
});
