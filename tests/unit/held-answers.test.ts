import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, it } from '@jest/globals';
import { AppError } from '../../src/errors.js';
import type { RequestContext } from '../../src/http/context.js';
import { holdAnswers } from '../../src/import/held-answers.js';

it('holds answers until there is no more memory for them, then waits until the client reads', async () => {
  // compresses to three quarters: more than 5 MiB, and than the buffers of the connection
  const line = randomBytes(48 * 1024).toString('base64');
  const count = 500;
  let reserved_bytes = 0;
  let added = 0;
  let endMemory: (() => void) | undefined;
  const outOfMemory = new Promise<void>((resolve) => {
    endMemory = resolve;
  });
  const memory = {
    add(bytes: number) {
      if (reserved_bytes === 1024 * 1024) {
        endMemory?.();
        throw new AppError('overloaded');
      }
      reserved_bytes += bytes;
    },
  };
  const server = createServer(async (_request, response) => {
    const answers = holdAnswers(response as unknown as RequestContext['response'], memory);
    for (; added < count; added++) await answers.add(`${added} ${line}\n`);
    await answers.end('the end');
  }).listen(0, '127.0.0.1');
  try {
    await once(server, 'listening');
    const sent = get({ host: '127.0.0.1', port: (server.address() as AddressInfo).port, agent: false });
    const answered = once(sent, 'response');
    await outOfMemory;
    const [response] = await answered;
    expect(added).toBeGreaterThan(80);
    expect(added).toBeLessThan(count);
    const lines = (await text(response)).split('\n');
    expect(lines.pop()).toBe('the end');
    expect(lines).toEqual(Array.from({ length: count }, (_, number) => `${number} ${line}`));
    expect(reserved_bytes).toBe(1024 * 1024);
  } finally {
    server.close();
  }
});
