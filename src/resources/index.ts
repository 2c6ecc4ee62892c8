import type { ListedType, StoredType } from '../schema/resource.js';
import { alarm, alarmdevice, alarmscan } from './alarm.js';
import { alarmrule } from './alarm-rule.js';
import { apikey } from './api-key.js';
import { asset } from './asset.js';
import { command } from './command.js';
import { delivery, webhookretry, webhookstate } from './delivery.js';
import { device } from './device/index.js';
import { deviceconfig } from './device-config.js';
import { devicestate } from './device-state.js';
import { devicevalue, valuereview } from './device-value.js';
import { defineEvents, deviceSubjectsOf } from './event.js';
import { group } from './group.js';
import { filestore } from './linked-storage.js';
import { model } from './model.js';
import { connection, mqttcredentials, retainedmessage, topic } from './mqtt.js';
import { project } from './project.js';
import { savedFilter } from './saved-filter.js';
import { service } from './service.js';
import { stream } from './stream.js';
import { streamsummary } from './stream-summary.js';
import { webhook } from './webhook.js';

/** Every resource with the five operations (reference/resources.md#operations), parents first. */
export const resources = [project, service, group, asset, model, device] as const;
export { alarm, alarmdevice, alarmscan } from './alarm.js';
export { alarmrule } from './alarm-rule.js';
export { apikey } from './api-key.js';
export { asset } from './asset.js';
export { command } from './command.js';
export { delivery, webhookretry, webhookstate } from './delivery.js';
export { device } from './device/index.js';
export { deviceconfig } from './device-config.js';
export { devicestate } from './device-state.js';
export { devicevalue, valuereview } from './device-value.js';
export { group } from './group.js';
export { file, filestore } from './linked-storage.js';
export { model } from './model.js';
export { connection, mqttcredentials, retainedmessage, topic } from './mqtt.js';
export { project } from './project.js';
export { savedFilter } from './saved-filter.js';
export { service } from './service.js';
export { stream, streamIdentity, streamOfAccount } from './stream.js';
export { streamsummary } from './stream-summary.js';
export { webhook } from './webhook.js';

/** Every other stored type. */
const others = [
  deviceconfig,
  devicestate,
  devicevalue,
  valuereview,
  command,
  stream,
  streamsummary,
  mqttcredentials,
  topic,
  retainedmessage,
  connection,
  apikey,
  filestore,
  savedFilter,
  webhook,
  alarmrule,
  alarm,
  alarmdevice,
  alarmscan,
  delivery,
  webhookretry,
  webhookstate,
];
export const event = defineEvents([...resources, ...others]);

/** The resources whose events are about a device. */
export const deviceSubjects: ReadonlySet<string> = new Set(deviceSubjectsOf([...resources, ...others]));

/** The stored types. */
export const collections: readonly (StoredType | ListedType)[] = [...resources, ...others, event];

/** The levels above devices, from the top. An object's `ancestors` have the ids of the levels above it in this order. */
export const ancestorLevels = device.ancestors;

const aboveDevices: ReadonlySet<string> = new Set(ancestorLevels.map(({ plural }) => plural));

/** Reports whether `enabled` of a collection's objects affects devices (reference/streams.md#disabled-devices). */
export function isAboveDevices(plural: string): boolean {
  return aboveDevices.has(plural);
}
