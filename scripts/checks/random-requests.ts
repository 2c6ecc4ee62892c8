import { setTimeout as sleep } from 'node:timers/promises';
import type mongoose from 'mongoose';
import type { LoggedEvent, SentRequest, StoredObject } from './event-log-model.js';
import { send } from './instance.js';

const plurals = ['projects', 'services', 'groups', 'assets', 'devices'] as const;
type Plural = (typeof plurals)[number];

/** Fields that name the parent in the body of a create, by collection. */
const parentsOf: Readonly<Record<Plural, readonly (readonly [field: string, plural: Plural])[]>> = {
  projects: [],
  services: [['id_project', 'projects']],
  groups: [['id_service', 'services']],
  assets: [['id_group', 'groups']],
  devices: [
    ['id_group', 'groups'],
    ['id_asset', 'assets'],
  ],
};

/** One of the clients that share the objects they have created. */
export interface RandomClient {
  instances: readonly { url: string }[];
  /** API key. */
  key: string;
  random: () => number;
  requests: SentRequest[];
  number: number;
  /** Pause between two requests; default: none. */
  pause_ms?: number | undefined;
  signal: AbortSignal;
}

/** Sends random creates, updates, moves and deletions, one after the other, until `signal` aborts. */
export async function sendRequests(client: RandomClient): Promise<void> {
  const { instances, key, random, requests, number, pause_ms = 0, signal } = client;
  const chooseFrom = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)];
  const known = new Map<Plural, string[]>(plurals.map((plural) => [plural, []]));
  const choose = (plural: Plural) => chooseFrom(known.get(plural) ?? []);
  /** Versions of objects; those with an update whose outcome is unknown have none, as it may still be applied. */
  const versions = new Map<string, number | undefined>();
  for (let count = 0; !signal.aborted; count++) {
    const plural = chooseFrom(plurals) ?? 'devices';
    const roll = random();
    const parent = chooseFrom(parentsOf[plural]);
    const parentId = parent && choose(parent[1]);
    const id = choose(plural);
    let request: Omit<SentRequest, keyof Answer>;
    let body: object | undefined;
    if (id === undefined || (roll < 0.35 && (parent === undefined || parentId !== undefined))) {
      if (parent !== undefined && parentId === undefined) continue;
      const name = `${plural}-${number}-${count}`;
      request = { method: 'POST', plural, id: `${name}@demo` };
      body = { name, ...(parent && { [parent[0]]: parentId }), ...requiredFields[plural] };
    } else if (roll < 0.9) {
      const isMove = roll > 0.75 && parent !== undefined && parentId !== undefined;
      request = { method: 'PUT', plural, id };
      const version = versions.get(`${plural} ${id}`);
      const change = isMove ? { [parent[0]]: parentId } : { description: `${number} ${count}` };
      body = version === undefined ? change : { ...change, version };
    } else if (plural === 'devices' || random() < 0.2) {
      request = { method: 'DELETE', plural, id };
    } else continue;
    const { url } = chooseFrom(instances) ?? { url: '' };
    const path = request.method === 'POST' ? `/${plural}/` : `/${plural}/${encodeURIComponent(request.id)}/`;
    const answer = await sendNoted(url, key, request.method, path, body);
    requests.push({ ...request, ...answer });
    const object = `${plural} ${request.id}`;
    if (answer.code === 2001) versions.set(object, 0);
    else if (answer.code >= 5000) versions.set(object, undefined);
    else if (versions.get(object) !== undefined) versions.set(object, answer.version ?? versions.get(object));
    if (answer.code === 2001) known.get(plural)?.push(request.id);
    if (answer.code === 2004 || answer.code === 4041)
      known.set(
        plural,
        (known.get(plural) ?? []).filter((one) => one !== request.id),
      );
    if (answer.code >= 5000) await sleep(50);
    else if (pause_ms > 0) await sleep(pause_ms);
  }
}

const requiredFields: Readonly<Record<Plural, object>> = {
  projects: { id_customer: 'c' },
  services: {},
  groups: {},
  assets: {},
  devices: { type: 'test' },
};

type Answer = Pick<SentRequest, 'code' | 'request_id' | 'version' | 'took_ms'>;

/** @returns the code of the answer, 5030 without one */
async function sendNoted(url: string, key: string, method: string, path: string, body?: object): Promise<Answer> {
  const sent_at = performance.now();
  const took = () => performance.now() - sent_at;
  try {
    const response = await send(url, key, method, path, body);
    const { code, details } = (await response.json()) as { code: number; details: { version?: number } };
    return { code, request_id: response.headers.get('x-request-id') ?? '', version: details?.version, took_ms: took() };
  } catch {
    return { code: 5030, request_id: '', version: undefined, took_ms: took() };
  }
}

/** Reads the log once nothing has been added to it for a while. */
export async function readWholeLog(db: mongoose.mongo.Db): Promise<LoggedEvent[]> {
  const log = db.collection<LoggedEvent>('events');
  const quiet_ms = 8000;
  for (let last = ''; ; ) {
    await sleep(quiet_ms);
    const [latest] = await log.find({}, { sort: { _id: -1 }, limit: 1 }).toArray();
    if (latest !== undefined && latest._id === last) break;
    last = latest?._id ?? '';
  }
  return log.find({}, { sort: { _id: 1 } }).toArray();
}

/** Reads all objects that have events, without their content. */
export async function readObjects(db: mongoose.mongo.Db): Promise<StoredObject[]> {
  const objects: StoredObject[] = [];
  for (const plural of plurals) {
    const projection = { _id: 0, id_developer: 1, version: 1 };
    for await (const { id_developer, version } of db.collection(plural).find({}, { projection }))
      objects.push({ resource: plural.slice(0, -1), id_developer, version });
  }
  return objects;
}
