import { once } from 'node:events';
import type { Server, ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, expect, it } from '@jest/globals';
import { trackConnections } from '../../src/http/connections.js';
import { openServer } from '../../src/http/server.js';

/** The time to send a request (reference/limits.md#values). */
const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

async function openSocket(locals: object, onRequest: (response: ServerResponse) => void) {
  const { server } = openServer({ requestTimeout: 0 });
  const handle = (_request: unknown, response: ServerResponse) => onRequest(Object.assign(response, { locals }));
  trackConnections(server, handle, { request_limit_ms: 100, request_check_ms: 20 });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1');
  return socket;
}

it('closes a connection whose request does not become complete', async () => {
  const socket = await openSocket({}, () => undefined);
  expect(await text(socket)).toMatch(
    /^HTTP\/1\.1 408 Request Timeout\r\nX-Request-Id: [\da-f-]{36}\r\n[\s\S]*\r\n\r\n\{"code":4081,"message":"request timeout","details":\{\}\}$/,
  );
});

it('closes it too if the request has been answered already', async () => {
  const socket = await openSocket({}, (response) => void response.end('early'));
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*early$/);
});

it('leaves an upload without a limit alone', async () => {
  let answer = () => {};
  const socket = await openSocket({ isUnlimitedUpload: true }, (response) => {
    answer = () => void response.end('late');
  });
  // ten times the limit: a connection that is closed by mistake is closed by then
  const ended = text(socket);
  const isClosed = await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 1000, 'open'))]);
  expect(isClosed).toBe('open');
  socket.end('23456789');
  answer();
  expect(await ended).toMatch(/late$/);
});
