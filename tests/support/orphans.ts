import type { Collection } from '../../src/db/database.js';

/** Which field names what: written down here by hand, so that it does not follow a mistake in the declarations. */
const mentions = [
  ['services', 'id_project', 'projects'],
  ['groups', 'id_service', 'services'],
  ['assets', 'id_group', 'groups'],
  ['devices', 'id_group', 'groups'],
  ['devices', 'id_asset', 'assets'],
  ['deviceconfigs', 'device', 'devices'],
  ['streams', 'device', 'devices'],
  ['mqttcredentials', 'device', 'devices'],
  ['mqtttopics', 'device', 'devices'],
] as const;

/**
 * What lies beneath nothing, or beneath something else than it says, as `plural/identifier`; and devices of a model
 * that is not there. Asked of the database itself, as the interface would not show it.
 */
export async function orphans(collection: (plural: string) => Pick<Collection, 'aggregate'>): Promise<string[]> {
  const found: string[] = [];
  const ask = async (
    plural: string,
    field: string,
    upper: string,
    by: { localField: string; foreignField: string },
  ) => {
    const cursor = collection(plural).aggregate([
      { $match: { [field]: { $exists: true } } },
      { $lookup: { from: upper, ...by, as: 'up' } },
      { $match: { $expr: { $not: { $in: [`$${field}`, '$up.id_developer'] } } } },
    ]);
    for (const { _id, id_developer, device } of await cursor.toArray())
      found.push(`${plural}/${id_developer ?? `${device}/${_id}`} (${field})`);
  };
  for (const [plural, field, upper] of mentions)
    await ask(plural, field, upper, { localField: 'parent', foreignField: '_id' });
  await ask('devices', 'id_model', 'models', { localField: 'id_model', foreignField: 'id_developer' });
  return found;
}
