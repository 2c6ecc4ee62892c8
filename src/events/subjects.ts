import { LRUCache } from 'lru-cache';
import { type Database, read_limit_ms } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { findAll } from '../db/raw-find.js';
import { buildNodeProjection, findParentRef, type ParentRef, resourceNames } from '../repositories/removed-nodes.js';
import { tombstonesOf } from '../repositories/tombstones.js';
import { ancestorFields } from '../resources/event.js';
import { collectionOf } from '../resources/index.js';
import type { Ancestors } from './ancestors.js';

/** An object that events are about, or one above it. */
export interface Subject {
  account: string;
  id_developer: string;
  /** Its own parent: `id_group`, or `device` below devices. */
  parent?: ParentRef | undefined;
}

/** Finds the objects of events, and what is above them. */
export interface Subjects {
  /** Looks up the documents that are not known, by `_id`; deleted ones by their tombstones. */
  load(plural: string, ids: readonly Id[]): Promise<void>;
  recall(plural: string, _id: Id): Subject | undefined;
  /** An object was created or moved: from now on this is its parent. */
  place(plural: string, _id: Id, subject: Subject): void;
  /** Finds what is above each subject, as far as it is known. */
  findAncestors(subjects: readonly Subject[]): Promise<Ancestors[]>;
}

const max_subjects = 20_000;

/** Collections of ancestors by the field that names one, devices included. */
const ancestorCollections: ReadonlyMap<string, string> = new Map([...collectionOf, ['device', 'devices']]);

/** Writes the key of a document, with the bytes of its id: their usual text takes ten times as long. */
function writeIdKey(plural: string, { buffer }: Id): string {
  return `${plural} ${Buffer.from(buffer).toString('latin1')}`;
}

/** Creates an empty cache, which is exact as long as every change is reported to it in order. */
export function createSubjects(db: Database): Subjects {
  const byId = new LRUCache<string, Subject>({ max: max_subjects });
  const parents = new LRUCache<string, { ref: ParentRef | undefined }>({ max: max_subjects });
  const nameKey = (account: string, plural: string, id: string) => `${account} ${plural} ${id}`;

  /** Looks up the parents of objects that are not known. */
  async function loadParents(account: string, plural: string, ids: readonly string[]): Promise<void> {
    const projection = buildNodeProjection(plural);
    const filter = { account, id_developer: { $in: [...ids] } };
    const found = await db.collection(plural).find(filter, { projection, maxTimeMS: read_limit_ms }).toArray();
    const missing = new Set(ids);
    for (const document of found) {
      const id = String(document.id_developer);
      parents.set(nameKey(account, plural, id), { ref: findParentRef(plural, document) });
      missing.delete(id);
    }
    if (missing.size === 0) return;
    const resource = resourceNames.get(plural) ?? plural;
    const deleted = await tombstonesOf(db)
      .find({ account, resource, id_developer: { $in: [...missing] } }, { sort: { at: 1 }, maxTimeMS: read_limit_ms })
      .toArray();
    for (const { id_developer, parent } of deleted) {
      parents.set(nameKey(account, plural, id_developer), { ref: parent });
      missing.delete(id_developer);
    }
    for (const id of missing) parents.set(nameKey(account, plural, id), { ref: undefined });
  }

  return {
    async load(plural, ids) {
      const unknown = ids.filter((_id) => !byId.has(writeIdKey(plural, _id)));
      if (unknown.length === 0) return;
      const found = await findAll(db.collection(plural), {
        filter: { _id: { $in: unknown } },
        projection: { ...buildNodeProjection(plural), account: 1, device: 1, provider: 1, username: 1 },
        maxTimeMS: read_limit_ms,
      });
      for (const document of found) byId.set(writeIdKey(plural, document._id), describeSubject(plural, document));
      const missing = unknown.filter((_id) => !byId.has(writeIdKey(plural, _id)));
      if (missing.length === 0) return;
      const options = { maxTimeMS: read_limit_ms };
      for (const tombstone of await tombstonesOf(db)
        .find({ object: { $in: missing } }, options)
        .toArray())
        byId.set(writeIdKey(plural, tombstone.object), tombstone);
    },
    recall: (plural, _id) => byId.get(writeIdKey(plural, _id)),
    place(plural, _id, subject) {
      byId.set(writeIdKey(plural, _id), subject);
      const key = nameKey(subject.account, plural, subject.id_developer);
      if (parents.has(key)) parents.set(key, { ref: subject.parent });
    },
    async findAncestors(subjects) {
      const ancestors: Ancestors[] = subjects.map(() => ({}));
      let level = subjects.map(({ account, parent }, index) => ({ account, ref: parent, index }));
      while (level.length > 0) {
        const known = level.flatMap(({ account, ref, index }) =>
          ref === undefined ? [] : [{ account, ref, index, plural: ancestorCollections.get(ref.field) ?? '' }],
        );
        const unknown = known.filter(({ account, plural, ref }) => !parents.has(nameKey(account, plural, ref.id)));
        const lookUps = new Map<string, { account: string; plural: string; ids: Set<string> }>();
        for (const { account, plural, ref } of unknown) {
          const lookUp = lookUps.get(`${account} ${plural}`) ?? { account, plural, ids: new Set() };
          lookUps.set(`${account} ${plural}`, lookUp);
          lookUp.ids.add(ref.id);
        }
        for (const { account, plural, ids } of lookUps.values()) await loadParents(account, plural, [...ids]);
        level = known.map(({ account, ref, plural, index }) => {
          const field = ancestorFields.find((name) => name === ref.field);
          if (field !== undefined) Object.assign(ancestors[index] ?? {}, { [field]: ref.id });
          return { account, ref: parents.get(nameKey(account, plural, ref.id))?.ref, index };
        });
      }
      return ancestors;
    },
  };
}

/** Describes a stored document as the subject of events. */
export function describeSubject(plural: string, document: { [key: string]: unknown }): Subject {
  const { account, id_developer, device, provider, username, id } = document;
  return {
    account: String(account),
    id_developer: provider === undefined ? String(id_developer ?? device ?? id) : `${provider}/${username}`,
    parent: findParentRef(plural, document),
  };
}
