import { asset } from './asset.js';
import { device } from './device/index.js';
import { group } from './group.js';
import { model } from './model.js';
import { project } from './project.js';
import { service } from './service.js';

/** Every resource with the five operations of section 4, parents first. */
export const resources = [project, service, group, asset, model, device] as const;
export { apikey } from './api-key.js';
export { asset } from './asset.js';
export { device } from './device/index.js';
export { deviceconfig } from './device-config.js';
export { group } from './group.js';
export { file, filestore } from './linked-storage.js';
export { model } from './model.js';
export { mqttcredentials, topic } from './mqtt.js';
export { project } from './project.js';
export { service } from './service.js';
export { stream, streamOfAccount } from './stream.js';

/** The collection that a field such as `id_group` points into. */
export const collectionOf: ReadonlyMap<string, string> = new Map(
  resources.flatMap(({ parentCollections }) => Object.entries(parentCollections)),
);

/** The field that names the parent, by collection; for devices, which have two, see `parentRefOf`. */
export const parentFieldOf: ReadonlyMap<string, string | undefined> = new Map(
  resources.map(({ plural, parents }) => [plural, parents[0]] as const),
);

/** The parent of a stored device: its group or its asset (§2.6). */
export function parentRefOf({ id_group, id_asset }: { [path: string]: unknown }): { field: string; id: string } {
  return typeof id_group === 'string'
    ? { field: 'id_group', id: id_group }
    : { field: 'id_asset', id: String(id_asset) };
}

const aboveDevices = new Set<string>();
for (const { plural, parentCollections } of resources.toReversed()) {
  if (plural === device.plural || aboveDevices.has(plural))
    for (const parent of Object.values(parentCollections)) aboveDevices.add(parent);
}

/** Tells whether objects of a collection can enable or disable the devices below them (contract 8). */
export function isAboveDevices(plural: string): boolean {
  return aboveDevices.has(plural);
}
