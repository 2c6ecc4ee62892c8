import type { Schema } from '../fields.js';

/** The groups of operations, in the order of the reference page. */
const descriptions: Readonly<Record<string, string>> = {
  projects: 'A project is the top of the hierarchy and holds services.',
  services: 'A service belongs to a project and holds groups.',
  groups: 'A group belongs to a service and holds assets and devices.',
  assets: 'An asset is a physical object with devices; it belongs to a group.',
  models: 'A model holds properties that its devices inherit. It belongs to the account alone.',
  devices: 'A device belongs to a group or to an asset, and sends streams. Its status is computed when it is read.',
  deviceconfigs: 'Configuration files of devices, each in any number of versions, which never change.',
  commands: 'Commands to devices, which a device gets over MQTT, from a feed or by asking, and answers.',
  streams:
    'Measurements (`_t` is `str`) and states (`sta`) of devices. Success means that a majority of the database has them in its journal.',
  filters: 'A saved filter names a query of the list of devices, to be used where devices are filtered.',
  events: 'What happened in the account: every change of an object, and every change of the status of a device.',
  import: 'Many resources in one request, from lines of JSON or CSV.',
  mqtt: 'Credentials and topics of devices that use MQTT, which the introduction describes.',
  storage: 'Storage of a user that an administrator links once; clients then list its files and open them by links.',
  catalogues: 'Values that device types and sensors usually have, and those that time zones can have.',
  apikeys: 'Keys of the users of the account. A lost key cannot be shown again: revoke it and issue another one.',
  webhooks: 'A webhook sends events of the account to an address as they happen, signed by Standard Webhooks.',
  alarms: 'An alarm is raised once when the conditions of its rule hold at a device, and closed when they end.',
  alarmrules: 'A rule says which values, states and silences of devices are an alarm, and how severe it is.',
  root: 'Health, metrics and documentation at the root of the server, without a key.',
};

export const tags: readonly Schema[] = Object.entries(descriptions).map(([name, description]) => ({
  name,
  description,
}));
