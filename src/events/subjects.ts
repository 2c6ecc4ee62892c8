import { LRUCache } from 'lru-cache';
import type { DatabaseAccess } from '../db/database.js';
import { copyId, type Id, keyOfId } from '../db/ids.js';
import { findAll, findMany } from '../db/raw-find.js';
import type { Ancestors } from '../objects/tree/ancestors.js';
import { nodeProjection } from '../objects/tree/removed-nodes.js';
import { tombstonesOf } from '../objects/tree/tombstones.js';
import { ancestorFields } from '../resources/event.js';
import { ancestorLevels, device } from '../resources/index.js';

/** An object that events are about, or one above it. */
export interface Subject {
  account: string;
  id_developer: string;
  /** Internal ids of the objects above it, from the top. */
  ancestors?: readonly Id[] | undefined;
  /** The device of an object below one, whose ancestors are its own. */
  device?: Id | undefined;
}

/** Finds the objects of events, and what is above them. */
export type Subjects = ReturnType<typeof createSubjects>;

const max_subjects = 50_000;
const projection = { ...nodeProjection, account: 1, tenant: 1, parent: 1, device: 1, provider: 1, username: 1 };

/** Creates an empty cache, which is exact as long as every change is reported to it in order. */
export function createSubjects(db: DatabaseAccess) {
  const byId = new LRUCache<string, Subject>({ max: max_subjects });
  /** Most objects have the same ones above them as others. */
  const chains = new LRUCache<string, readonly Id[]>({ max: max_subjects });

  function remember(_id: Id, { account, id_developer, ancestors, device: of }: Subject): void {
    const subject: Subject = { account, id_developer };
    if (ancestors !== undefined) subject.ancestors = shareChain(ancestors);
    if (of !== undefined) subject.device = copyId(of);
    byId.set(keyOfId(_id), subject);
  }

  function shareChain(ancestors: readonly Id[]): readonly Id[] {
    const key = ancestors.map(keyOfId).join('');
    const chain = chains.get(key) ?? ancestors.map(copyId);
    chains.set(key, chain);
    return chain;
  }

  /** Looks up objects that are not known; deleted ones by their tombstones. */
  async function load(plural: string, ids: readonly Id[]): Promise<void> {
    const missing = new Map(ids.map((_id) => [keyOfId(_id), _id]));
    for (const key of missing.keys()) if (byId.has(key)) missing.delete(key);
    if (missing.size === 0) return;
    const filter = { _id: { $in: [...missing.values()] } };
    for (const document of await findAll(db.collection(plural), { filter, projection })) {
      remember(document._id, describeSubject(document));
      missing.delete(keyOfId(document._id));
    }
    if (missing.size === 0) return;
    const deleted = { object: { $in: [...missing.values()] } };
    for (const tombstone of await findMany(tombstonesOf(db), deleted)) remember(tombstone.object, tombstone);
  }

  const recall = (_id: Id): Subject | undefined => byId.get(keyOfId(_id));

  return {
    load,
    recall,
    /** An object was created or moved: from now on this is its place. */
    place: remember,
    /** Finds what is above each subject, as far as it is known. */
    async findAncestors(subjects: readonly Subject[]): Promise<Ancestors[]> {
      const devices = subjects.flatMap((subject) => subject.device ?? []);
      await load(device.plural, devices);
      const chains = subjects.map(({ ancestors, device: _id }) => [
        ...(ancestors ?? (_id === undefined ? [] : (recall(_id)?.ancestors ?? []))),
      ]);
      // an object moves with what is above it, and only the highest one that moves is reported
      for (const [level, { plural }] of [...ancestorLevels.entries()].reverse()) {
        const ids = chains.flatMap((chain) => chain[level] ?? []);
        await load(plural, ids);
        for (const chain of chains) {
          const parent = chain[level] && recall(chain[level]);
          if (parent?.ancestors !== undefined) chain.splice(0, level, ...parent.ancestors);
        }
      }
      return chains.map((chain) => {
        const names = chain.map((_id, level) => [ancestorFields[level], recall(_id)?.id_developer]);
        return Object.fromEntries(names.filter(([, name]) => name !== undefined)) as Ancestors;
      });
    },
  };
}

/** Describes a stored document as the subject of events. */
export function describeSubject(document: { [key: string]: unknown }): Subject {
  // `tenant` is the account of what no list shows yet
  const { tenant, account = tenant, id_developer, ancestors, device: of, parent, provider, username, id } = document;
  return {
    account: String(account),
    id_developer: provider === undefined ? String(id_developer ?? of ?? id) : `${provider}/${username}`,
    ...(Array.isArray(ancestors) && { ancestors }),
    ...(of !== undefined && { device: parent as Id }),
  };
}
