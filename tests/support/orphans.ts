import type { Collection } from '../../src/db/database.js';

/** Collections, their reference fields and the collections referred to: by hand, so that a mistake in a declaration shows. */
const references = [
  ['services', 'id_project', 'projects'],
  ['groups', 'id_service', 'services'],
  ['assets', 'id_group', 'groups'],
  ['devices', 'id_group', 'groups'],
  ['devices', 'id_asset', 'assets'],
  ['deviceconfigs', 'device', 'devices'],
  ['streams', '_id.device', 'devices'],
  ['mqttcredentials', 'device', 'devices'],
  ['mqtttopics', 'device', 'devices'],
  ['mqtt_retained', 'device', 'devices'],
] as const;

/**
 * Lists documents whose parent is missing or is not the one they name, as `plural/identifier`, objects whose stored ancestors are
 * not those above their parent and the parent itself, and devices whose model is missing. Reads the database directly, because the interface would not show them.
 */
export async function findOrphans(collection: (plural: string) => Pick<Collection, 'aggregate'>): Promise<string[]> {
  const found: string[] = [];
  const search = async (
    plural: string,
    field: string,
    parentCollection: string,
    keys: { localField: string; foreignField: string },
  ) => {
    const cursor = collection(plural).aggregate([
      { $match: { [field]: { $exists: true } } },
      { $lookup: { from: parentCollection, ...keys, as: 'target' } },
      { $match: { $expr: { $not: { $in: [`$${field}`, '$target.id_developer'] } } } },
    ]);
    for (const { _id, id_developer, device } of await cursor.toArray())
      found.push(`${plural}/${id_developer ?? `${device ?? _id.device}/${_id}`} (${field})`);
  };
  for (const [plural, , parentCollection] of references.slice(0, 5)) {
    const cursor = collection(plural).aggregate([
      { $lookup: { from: parentCollection, localField: 'parent', foreignField: '_id', as: 'above' } },
      { $match: { above: { $ne: [] } } },
      { $set: { above: { $first: '$above' } } },
      { $set: { expected: { $concatArrays: [{ $ifNull: ['$above.ancestors', []] }, ['$above._id']] } } },
      { $match: { $expr: { $ne: ['$ancestors', '$expected'] } } },
    ]);
    for (const { id_developer } of await cursor.toArray()) found.push(`${plural}/${id_developer} (ancestors)`);
  }
  for (const [plural, field, parentCollection] of references)
    await search(plural, field, parentCollection, { localField: 'parent', foreignField: '_id' });
  await search('devices', 'id_model', 'models', { localField: 'id_model', foreignField: 'id_developer' });
  return found;
}
