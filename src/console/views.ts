/** The views that are loaded with the first link that is followed: the overview comes without them. */
export { Alarms } from './alarms/alarms.js';
export { FleetConfigs } from './device/fleet-configs.js';
export { MapView } from './device/map.js';
export { Streams } from './device/streams.js';
export { Events } from './events/events.js';
export { Import } from './import/import.js';
export { ApiKeys } from './keys/api-keys.js';
export { Connections } from './mqtt/connections.js';
export { Hierarchy } from './objects/hierarchy.js';
export { ListView } from './objects/list.js';
export { NewObject } from './objects/new.js';
export { ObjectView } from './objects/object.js';
export { About } from './shell/about.js';
export { Storage } from './storage/storage.js';
export { Webhook, Webhooks } from './webhooks/webhooks.js';
