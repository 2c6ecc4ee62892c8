import { asset } from './asset.js';
import { device } from './device/index.js';
import { group } from './group.js';
import { model } from './model.js';
import { project } from './project.js';
import { service } from './service.js';

/** Every resource with the five operations (reference/resources.md#operations), parents first. */
export const resources = [project, service, group, asset, model, device] as const;
export { apikey } from './api-key.js';
export { asset } from './asset.js';
export { device } from './device/index.js';
export { deviceconfig } from './device-config.js';
export { event } from './event.js';
export { group } from './group.js';
export { file, filestore } from './linked-storage.js';
export { model } from './model.js';
export { mqttcredentials, topic } from './mqtt.js';
export { project } from './project.js';
export { service } from './service.js';
export { stream, streamIdentity, streamOfAccount } from './stream.js';
export { delivery, webhook, webhookretry, webhookstate } from './webhook.js';

/** Collections by the field that holds an identifier of them, such as `id_group`. */
export const collectionOf: ReadonlyMap<string, string> = new Map(
  resources.flatMap(({ parentCollections }) => Object.entries(parentCollections)),
);

/** The field that names the parent, by collection. Devices have two such fields: see `parentRefOf`. */
export const parentFieldOf: ReadonlyMap<string, string | undefined> = new Map(
  resources.map(({ plural, parents }) => [plural, parents[0]] as const),
);

/** The parent of a stored device: its group or its asset (reference/devices.md#parents). */
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

/** Reports whether `enabled` of a collection's objects affects devices (reference/streams.md#disabled-devices). */
export function isAboveDevices(plural: string): boolean {
  return aboveDevices.has(plural);
}
