import type { Collection, Database, StoredDocument } from '../db/database.js';
import { resources } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { buildSearchText, search_separator, toFolded } from '../schema/search.js';

/** Returns the changes that keep the search text of an object up to date, in one write with the others. */
export function buildSearchChange(
  id: string,
  set: Values,
  unset: readonly string[],
): { set?: { search_text: string }; derived?: { search_text: object } } {
  const isNameSet = 'name' in set;
  const isDescriptionSet = 'description' in set || unset.includes('description');
  if (!isNameSet && !isDescriptionSet) return {};
  const { name, description = '' } = set;
  if (isNameSet && isDescriptionSet)
    return { set: { search_text: buildSearchText({ name, id_developer: id, description }) } };
  const stored = { $split: ['$search_text', search_separator] };
  const parts = [
    isNameSet ? literal(toFolded(String(name))) : { $arrayElemAt: [stored, 0] },
    literal(search_separator),
    { $arrayElemAt: [stored, 1] },
    literal(search_separator),
    isDescriptionSet ? literal(toFolded(String(description))) : { $arrayElemAt: [stored, 2] },
  ];
  const isMigrated = { $eq: [{ $type: '$search_text' }, 'string'] };
  return { derived: { search_text: { $cond: [isMigrated, { $concat: parts }, '$$REMOVE'] } } };
}

function literal(text: string): object {
  return { $literal: text };
}

const chunk_size = 1000;

/** Adds the search text to resources that were stored before there was one. */
export async function ensureSearchTexts(db: Database): Promise<void> {
  for (const { plural } of resources) {
    const collection = db.collection(plural);
    // an object that changes in between keeps for the next pass
    while ((await addMissing(db, collection)) > 0);
  }
}

/** @returns the number of objects that had no search text */
async function addMissing(db: Database, collection: Collection): Promise<number> {
  let found = 0;
  for (let after = db.buildMinId(0), isFull = true; isFull; ) {
    const page = await collection
      .find(
        { _id: { $gt: after }, search_text: { $exists: false } },
        {
          projection: { name: 1, id_developer: 1, description: 1 },
          sort: { _id: 1 },
          limit: chunk_size,
        },
      )
      .toArray();
    if (page.length > 0) await collection.bulkWrite(page.map(buildUpdate), { ordered: false });
    found += page.length;
    isFull = page.length === chunk_size;
    after = page.at(-1)?._id ?? after;
  }
  return found;
}

function buildUpdate({ _id, name, id_developer, description }: StoredDocument) {
  // null also matches an absent description
  const filter = { _id, name, description: description ?? null, search_text: { $exists: false } };
  const search_text = buildSearchText({ name, id_developer, description: description ?? '' });
  return { updateOne: { filter, update: { $set: { search_text } } } };
}
