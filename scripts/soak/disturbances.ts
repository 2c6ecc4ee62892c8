import { setTimeout as sleep } from 'node:timers/promises';
import { type Instance, openConnections } from '../support/instance.js';
import { encodeConnect } from '../support/mqtt-packets.js';

const pause_ms = 2000;
const hold_ms = 4000;

/** Behaves like slow and broken clients, one kind after the other, until `signal` aborts. */
export async function disturb(instance: Instance, signal: AbortSignal): Promise<void> {
  const port = Number(new URL(instance.url).port);
  const head = `HTTP/1.1\r\nHost: x\r\nservice.apikey: ${instance.key}\r\n`;
  const list = `GET /streams/?max=1000 ${head}\r\n`;
  const kinds = [
    () => holdOpen(port, 50, `POST /models/ ${head}Content-Length: 1000\r\n\r\n{"name": `),
    () => resetAfter(port, 5, `GET /readyz ${head}\r\n`.repeat(500)),
    () => resetAfter(port, 20, list.repeat(3)),
    () => holdOpen(port, 30, list.repeat(3)),
    () => holdOpen(port, 50, 'GET /devices/ HT'),
    () => abandonLogins(instance.mqttPort, 60),
  ];
  for (let turn = 0; !signal.aborted; turn++) {
    // a connection that the service refuses or resets is no failure of a broken client
    await kinds[turn % kinds.length]?.().catch(() => undefined);
    await sleep(pause_ms, undefined, { signal }).catch(() => undefined);
  }
}

/** Sends `text` on each connection, reads nothing and closes them after a while. */
async function holdOpen(port: number, count: number, text: string): Promise<void> {
  const connections = await openConnections(port, count);
  for (const { socket } of connections) {
    socket.pause();
    socket.write(text);
  }
  await sleep(hold_ms);
  for (const { socket } of connections) socket.destroy();
}

async function resetAfter(port: number, count: number, text: string): Promise<void> {
  const connections = await openConnections(port, count);
  for (const { socket } of connections) {
    socket.pause();
    socket.write(text);
  }
  await sleep(50);
  for (const { socket } of connections) socket.resetAndDestroy();
}

async function abandonLogins(port: number, count: number): Promise<void> {
  const connections = await openConnections(port, count);
  for (const [n, { socket }] of connections.entries())
    socket.write(encodeConnect(`nobody-${n}`, 'wrong password', `gone-${n}`));
  await sleep(20);
  for (const { socket } of connections) socket.resetAndDestroy();
}
