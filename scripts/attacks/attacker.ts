import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { type Instance, openConnections, sendRequest } from '../support/instance.js';
import { encodeConnect, encodePacket, encodeString } from '../support/mqtt-packets.js';
import { waitUntil } from '../support/service-process.js';
import { insertCopies } from './copies.js';
import { createFleet, password } from './target.js';

/** An account that takes as much of a service as it can. */
export interface Attacker {
  url: string;
  port: number;
  mqttPort: number;
  account: string;
  /** Key of scope `admin`. */
  key: string;
  /** Password of the MQTT credentials, whose username is the account. */
  password: string;
  /** 1 for as much as one account would; the attackers of a soak test have a tenth. */
  strength: number;
  /** Ends the attack. */
  signal: AbortSignal;
  database(): Promise<mongo.Db>;
  /** Creates another account with a device `pump`. */
  addAccount(account: string): Promise<Attacker>;
}

/** An attack on one thing that accounts share (reference/limits.md#shares). */
export interface SharedAttack {
  name: string;
  /** The neighbour is another key of the same account. */
  isOwn?: boolean;
  /** Begins to attack, until the signal aborts. */
  start(attacker: Attacker): Promise<void>;
}

/** Makes an attacker of an account that has a device `pump`. */
export function createAttacker(
  instance: Instance,
  account: string,
  key: string,
  { strength, signal }: Pick<Attacker, 'strength' | 'signal'>,
): Attacker {
  const { url, mqttPort, database } = instance;
  return {
    ...{ url, port: Number(new URL(url).port), mqttPort, account, key, password, strength, signal, database },
    addAccount: (other) => openAccount(instance, other, { strength, signal }),
  };
}

/** Creates the account of an attacker. */
export async function openAccount(
  instance: Instance,
  account: string,
  options: Pick<Attacker, 'strength' | 'signal'>,
): Promise<Attacker> {
  const key = await instance.issueKey(account, 'admin');
  const attacker = createAttacker(instance, account, key, options);
  await createFleet({ send: (method, path, body) => send(attacker, method, path, body) }, account, key);
  return attacker;
}

/** Sends a request of the account. */
export function send({ url, key }: Attacker, method: string, path: string, body?: string | object) {
  return sendRequest({ url, key, method, path, body });
}

/** Repeats work so many times in parallel; a refused attempt is repeated after a pause, as a client without manners does. */
export function repeat(
  { strength, signal }: Attacker,
  parallel: number,
  work: (lane: number) => Promise<unknown>,
): void {
  for (let lane = 0; lane < Math.max(1, parallel * strength); lane++)
    void (async () => {
      while (!signal.aborted) await work(lane).catch(() => sleep(100));
    })();
}

/** Requests paths again and again, each connection the next one. */
export function repeatReads(attacker: Attacker, parallel: number, paths: readonly string[]): void {
  repeat(attacker, parallel, async (lane) => {
    const { status } = await send(attacker, 'GET', paths[lane % paths.length] ?? '');
    if (status !== 200) await sleep(50);
  });
}

/** Opens connections, sends `text` on each, reads nothing, and opens them again when they are closed. */
export function holdOpen(
  { port, strength, signal }: Attacker,
  count: number,
  textOf: (lane: number) => string | Buffer,
): void {
  void (async () => {
    while (!signal.aborted) {
      const connections = await openConnections(port, Math.max(1, Math.round(count * strength))).catch(() => []);
      for (const [lane, { socket }] of connections.entries()) {
        socket.pause();
        socket.write(textOf(lane));
      }
      await sleep(10_000, undefined, { signal }).catch(() => undefined);
      for (const { socket } of connections) socket.destroy();
    }
  })();
}

/** Begins imports whose bodies come two bytes a second. */
export async function trickleBodies(attacker: Attacker, count: number): Promise<void> {
  const { port, signal } = attacker;
  const head = format(attacker, 'POST', '/import/?resource=model', 'Transfer-Encoding: chunked\r\n');
  const trickling = await openConnections(port, count);
  for (const { socket } of trickling) socket.write(head);
  void (async () => {
    for (; !signal.aborted; await sleep(500))
      for (const { socket } of trickling) if (!socket.destroyed) socket.write('1\r\n{\r\n');
    for (const { socket } of trickling) socket.destroy();
  })();
}

/** Subscribes MQTT clients that read nothing. */
export function subscribeUnread(attacker: Attacker, count: number, filter: string): void {
  const { mqttPort, account, password } = attacker;
  const subscribe = encodePacket(0x82, Buffer.from([0, 1]), encodeString(filter), Buffer.from([1]));
  holdOpen({ ...attacker, port: mqttPort }, count, (lane) =>
    Buffer.concat([encodeConnect(account, password, `${filter} ${lane}`), subscribe]),
  );
}

/** Formats the head of a request of the account. */
export function format({ key }: Attacker, method: string, path: string, headers = ''): string {
  return `${method} ${path} HTTP/1.1\r\nHost: x\r\nservice.apikey: ${key}\r\n${headers}\r\n`;
}

/** Gives the account devices in a row. */
export async function insertDevices(attacker: Attacker, max: number): Promise<void> {
  const { account, strength } = attacker;
  const count = max * strength;
  const body = { name: 'copied', type: 'copy', id_group: `hall@${account}`, lon: 1, lat: 1 };
  await send(attacker, 'POST', '/devices/', body);
  const change = (n: number) => ({ id_developer: `copied-${n + 2}@${account}` });
  await insertCopies(attacker, 'devices', { account, id_developer: `copied@${account}` }, { count, change });
  // the log of events has to reach what no request has sent
  await send(attacker, 'POST', '/models/', { name: 'behind the copies' });
  const path = `/events/?type=model.created&id_developer=${encodeURIComponent(`behind the copies@${account}`)}`;
  await waitUntil(async () => (await send(attacker, 'GET', path)).text.includes('"total_documents":1'));
}
