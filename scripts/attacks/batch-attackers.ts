import { setTimeout as sleep } from 'node:timers/promises';
import { runInParallel } from '../../src/lib/parallel.js';
import {
  type Attacker,
  format,
  holdOpen,
  insertDevices,
  repeat,
  type SharedAttack,
  send,
  subscribeUnread,
  trickleBodies,
} from './attacker.js';

const rule_count = 200;

/** Attacks by work that the service does behind requests: batches, rules, records, wake-ups and their ends. */
export const batchAttacks: readonly SharedAttack[] = [
  { name: 'bodies of 1,000 streams against 200 rules and 30 filtered paths', start: floodRules },
  { name: '200 rules with 20,000 alarms, replaced and deleted', start: removeRules },
  { name: '45 MQTT subscribers to 1,000 desired states of 32 KiB', start: subscribeStates },
  { name: '20 MQTT subscribers to commands for 1,000 devices a second', start: subscribeCommands },
  { name: 'bulk changes of 0.9 MB for 300 devices', start: changeLargeProperties },
  { name: '300 states of 32 KiB at once', start: floodStates },
  { name: 'texts of 60 KB against 200 rules', start: sendLargeTexts },
  { name: 'lists of devices of 250 models with 1 MiB of properties', start: listLargeModels },
  { name: 'ten trickling imports of two accounts', start: trickleImports },
  {
    name: '300 lists of 5.9 MB that one key does not read, beside a key of its account',
    start: leaveListsUnread,
    isOwn: true,
  },
  { name: '20 accounts, each within its share', start: floodAccounts },
];

const numbers = (count: number) => Array.from({ length: count }, (_, number) => number);
const scaled = (count: number, { strength }: Attacker) => Math.max(1, Math.round(count * strength));
const filler = (length: number) => 'x'.repeat(length);

/** Sends a request that an attack is based on. @throws Error unless it succeeds */
async function prepare(attacker: Attacker, method: string, path: string, body: object): Promise<void> {
  const { status, text } = await send(attacker, method, path, body);
  if (status !== 200) throw new Error(`${method} ${path}: ${text}`);
}

async function createRules(attacker: Attacker, conditionOf: (number: number) => object): Promise<void> {
  await runInParallel(numbers(scaled(rule_count, attacker)), 20, async (number) => {
    const body = { name: `rule ${number}`, severity: 'info', conditions: [conditionOf(number)] };
    await prepare(attacker, 'POST', '/alarmrules/', body);
  });
}

async function floodRules(attacker: Attacker): Promise<void> {
  await createRules(attacker, (number) => ({ path: `p${number % 30}`, op: '>', value: number }));
  for (const model of numbers(3)) {
    const measures = numbers(10).map((path) => ({ path: `p${model * 10 + path}`, filter: true }));
    await prepare(attacker, 'POST', '/models/', { name: `measured ${model}`, measures });
  }
  let sent = 0;
  repeat(attacker, 4, async (lane) => {
    const dataOf = () => Object.fromEntries(numbers(30).map((path) => [`p${path}`, sent++ % 400]));
    const body = numbers(lane < 2 ? 100 : 1000).map(() => ({ data: dataOf() }));
    const { status } = await send(attacker, 'POST', `/devices/pump@${attacker.account}/streams/`, body);
    if (status !== 200) await sleep(50);
  });
}

async function removeRules(attacker: Attacker): Promise<void> {
  const { account } = attacker;
  await insertDevices(attacker, 100);
  await createRules(attacker, () => ({ path: 'n', op: '>', value: 0 }));
  const { text } = await send(attacker, 'GET', '/devices/?type=copy&max=1000&fields=id_developer');
  const devices = (JSON.parse(text).result as { id_developer: string }[]).map(({ id_developer }) => id_developer);
  await runInParallel(devices, 4, (device) => prepare(attacker, 'POST', '/streams/', { device, data: { n: 1 } }));
  repeat(attacker, 10, async (lane) => {
    const number = (lane + 10 * Math.floor(Math.random() * 20)) % rule_count;
    const body = { name: `rule ${number}`, severity: 'info', conditions: [{ path: 'n', op: '>', value: 0 }] };
    await send(attacker, 'DELETE', `/alarmrules/rule%20${number}@${account}/`);
    await send(attacker, 'POST', '/alarmrules/', body);
  });
}

/** Subscribes clients that read nothing to a topic of the device `pump`. */
async function subscribePump(attacker: Attacker, count: number, filter: string): Promise<void> {
  await prepare(attacker, 'POST', `/mqttdevices/pump@${attacker.account}/topics/`, { name: filter });
  subscribeUnread(attacker, count, filter);
}

async function subscribeStates(attacker: Attacker): Promise<void> {
  await insertDevices(attacker, 1000);
  await runInParallel(numbers(scaled(1000, attacker)), 20, (number) =>
    prepare(attacker, 'PATCH', `/devices/copied-${number + 2}@${attacker.account}/state/`, { text: filler(32_000) }),
  );
  await subscribePump(attacker, 45, '#');
}

async function subscribeCommands(attacker: Attacker): Promise<void> {
  await insertDevices(attacker, 1000);
  await subscribePump(attacker, 20, '+/commands');
  const path = `/devices/commands/?type=copy&confirm=${scaled(1000, attacker) + 1}`;
  repeat(attacker, 1, () => Promise.all([send(attacker, 'POST', path, { name: 'wake', expires_in: 5 }), sleep(1000)]));
}

async function changeLargeProperties(attacker: Attacker): Promise<void> {
  await insertDevices(attacker, 300);
  const path = `/devices/?type=copy&confirm=${scaled(300, attacker) + 1}`;
  let change = 0;
  repeat(attacker, 1, () => send(attacker, 'PATCH', path, { properties: { text: `${change++}${filler(900_000)}` } }));
}

async function floodStates(attacker: Attacker): Promise<void> {
  await insertDevices(attacker, 300);
  let sent = 0;
  repeat(attacker, 300, (lane) =>
    send(attacker, 'PATCH', `/devices/copied-${lane + 2}@${attacker.account}/state/`, {
      text: `${sent++}${filler(32_000)}`,
    }),
  );
}

async function sendLargeTexts(attacker: Attacker): Promise<void> {
  await createRules(attacker, (number) => ({ path: 'text', op: '!=', value: `${number}` }));
  let sent = 0;
  repeat(attacker, 4, () =>
    send(attacker, 'POST', `/devices/pump@${attacker.account}/streams/`, {
      data: { text: sent++ % 2 === 0 ? filler(60_000) : '1' },
    }),
  );
}

async function listLargeModels(attacker: Attacker): Promise<void> {
  const { account } = attacker;
  await runInParallel(numbers(scaled(250, attacker)), 4, async (number) => {
    await prepare(attacker, 'POST', '/models/', { name: `large ${number}`, properties: { text: filler(1_040_000) } });
    const body = {
      name: `of ${number}`,
      type: 'x',
      id_group: `hall@${account}`,
      id_model: `large ${number}@${account}`,
    };
    await prepare(attacker, 'POST', '/devices/', body);
  });
  repeat(attacker, 20, async () => {
    const { status } = await send(attacker, 'GET', '/devices/?type=x&max=1000');
    if (status !== 200) await sleep(50);
  });
}

async function trickleImports(attacker: Attacker): Promise<void> {
  const other = await attacker.addAccount(`${attacker.account}-2`);
  for (const each of [attacker, other]) await trickleBodies(each, 5);
}

async function leaveListsUnread(attacker: Attacker): Promise<void> {
  const { account } = attacker;
  await runInParallel(numbers(100), 4, (number) =>
    prepare(attacker, 'POST', '/devices/', {
      ...{ name: `wide ${number}`, type: 'wide', id_group: `hall@${account}` },
      properties: { text: filler(59_000) },
    }),
  );
  holdOpen(attacker, 300, () => format(attacker, 'GET', '/devices/?type=wide&max=1000'));
}

async function floodAccounts(attacker: Attacker): Promise<void> {
  for (const number of numbers(20)) {
    const sybil = await attacker.addAccount(`sybil-${number}`);
    const device = `/devices/pump@${sybil.account}/`;
    let created = 0;
    repeat(sybil, 8, (lane) => {
      if (lane < 3) return send(sybil, 'GET', device);
      if (lane < 6)
        return send(
          sybil,
          'POST',
          `${device}streams/`,
          numbers(20).map((n) => ({ data: { n } })),
        );
      return send(sybil, 'POST', '/models/', { name: `sybil ${created++}` });
    });
  }
}
