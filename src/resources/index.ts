import { asset } from './asset.js';
import { device } from './device.js';
import { group } from './group.js';
import { model } from './model.js';
import { project } from './project.js';
import { service } from './service.js';

/** Every resource with the five operations of section 4, parents first. */
export const resources = [project, service, group, asset, model, device] as const;
export { apikey } from './apikey.js';
export { asset } from './asset.js';
export { device } from './device.js';
export { deviceconfig } from './deviceconfig.js';
export { group } from './group.js';
export { model } from './model.js';
export { mqttcredentials, topic } from './mqtt.js';
export { project } from './project.js';
export { service } from './service.js';
export { stream, streamOfAccount } from './stream.js';
