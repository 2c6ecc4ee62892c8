import mongoose from 'mongoose';
import { findOne } from '../db/raw-find.js';
import type { Store } from '../objects/context.js';
import { ancestorFields, type StoredEvent } from '../resources/event.js';
import { alarmrule, device, deviceSubjects, model, resources } from '../resources/index.js';
import type { Measure } from '../resources/measure.js';
import { formatPointer } from '../schema/data-path.js';
import { parseSinglePath } from '../schema/fields/text.js';
import { toPlainJson } from '../serialize/plain-json.js';
import { type Names, type TextMessage, writeMessage } from './message.js';

const { BSON } = mongoose.mongo;

/** Writes an event of an account for people. */
export type Describe = (account: string, event: StoredEvent) => Promise<TextMessage>;

interface Named {
  account: string;
  id_developer: string;
  name: string;
  time_zone?: string;
  id_model?: string;
  measures?: readonly Measure[];
}

/** Models and devices have properties of up to 1 MiB beside. */
const options = { projection: { _id: 0, name: 1, time_zone: 1, id_model: 1, measures: 1 } };
const plurals = new Map([...resources, alarmrule].map(({ name, plural }) => [name, plural]));
const resourceOf = (resource: string) => (deviceSubjects.has(resource) ? device.name : resource);

/** Creates the author of messages. @param consoleUrl address of the console; undefined: there is none */
export function createDescriber(
  { db, costly }: Pick<Store, 'db' | 'costly'>,
  consoleUrl: () => string | undefined,
): Describe {
  const find = (account: string, plural: string, id_developer: string) =>
    findOne(db.collection<Named>(plural), { account, id_developer }, options);

  async function findNames(account: string, event: StoredEvent): Promise<Names> {
    const found = new Map(
      await Promise.all(
        listIdentifiers(event).map(async ([resource, id]): Promise<[string, Named | undefined]> => {
          return [`${resource} ${id}`, await find(account, plurals.get(resource) ?? '', id)];
        }),
      ),
    );
    const { time_zone, id_model } = found.get(`${device.name} ${event.id_developer}`) ?? {};
    const { measures = [] } = (id_model !== undefined && (await find(account, model.plural, id_model))) || {};
    const byPointer = new Map(measures.map((measure) => [toPointer(measure.path), measure]));
    return {
      nameOf: (resource, id) => formatName(id, account, found.get(`${resourceOf(resource)} ${id}`)?.name),
      measureOf: (path) => byPointer.get(toPointer(path)),
      time_zone,
    };
  }

  return async (account, stored) => {
    const event = toPlainJson(BSON.serialize(stored)) as unknown as StoredEvent;
    const names = await costly.run(account, () => findNames(account, event));
    const base = consoleUrl();
    return writeMessage(event, names, base && `${base}${findPage(event)}`);
  };
}

/** The things that an event names, by resource and identifier. */
function listIdentifiers({ resource, id_developer, data, ...event }: StoredEvent): [string, string][] {
  const rule = (data as { rule?: unknown } | undefined)?.rule;
  const above = ancestorFields.flatMap((field): [string, string][] => {
    const id = event[field];
    return id === undefined ? [] : [[field.slice('id_'.length), id]];
  });
  const named: [string, string][] = [...above, [resourceOf(resource), id_developer]];
  if (typeof rule === 'string') named.push([alarmrule.name, rule]);
  return named.filter(([name]) => plurals.has(name));
}

const toPointer = (path: string) => formatPointer(parseSinglePath(path) ?? { steps: [{ key: path }] });

/** Formats a name, with the identifier where that is another; without a name, the identifier. */
function formatName(id: string, account: string, name: string | undefined): string {
  const suffix = `@${account}`;
  if (name === undefined) return id.endsWith(suffix) ? id.slice(0, -suffix.length) : id;
  return id === name + suffix ? name : `${name} (${id})`;
}

/** The page of the console about the object of an event; that of all events where it has none. */
function findPage({ type, resource, id_developer }: StoredEvent): string {
  const plural = plurals.get(resourceOf(resource)) ?? (resource === 'webhook' ? 'webhooks' : undefined);
  return plural === undefined || type.endsWith('.deleted')
    ? '/events'
    : `/${plural}/${encodeURIComponent(id_developer)}`;
}
