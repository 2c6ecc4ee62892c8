import type { Schema } from '../fields.js';

const mqtt = `What devices do over MQTT is described here; the operations below manage their credentials and topics.

**Connect** with MQTT 3.1 or 3.1.1 to \`MQTT_PORT\` (by default 1883), or over WebSocket to \`/mqtt\` of this server
(subprotocol \`mqtt\`). Username and password are the credentials of the device. Firmware of the former platform uses an API
key as the username and an empty password.

**Publish** streams as JSON. \`{id}\` is the identifier of the device with \`%\`, \`/\`, \`+\` and \`#\` percent-encoded.

| topic | stores |
|---|---|
| \`{id}/streams\` | data streams |
| \`{id}/status\` | status streams |
| \`{key}/streams\`, \`{key}/status\` | the same for a login with an API key; each stream names its \`device\` |

A payload is a stream (\`{"data": {"bar": 2.4}, "at": 1700000000}\`), an array of 1 to 1,000 of them, or bare data
(\`{"bar": 2.4}\`). \`protocol\` is \`mqtt\` unless given. At QoS 1 and 2 the acknowledgement means that the database has
stored it. What does not validate or is not allowed is acknowledged, dropped and counted in
\`mqtt_dropped_total{reason}\` at \`/metrics\`.

\`\`\`sh
mosquitto_pub -q 1 -i pump-1 -u pump-1 -P 'open sesame' -t 'Pump@demo/streams' -m '{"bar": 2.4}'
\`\`\`

**Subscribe** to \`{id}/streams\`, \`{id}/status\` and the topics granted below. A device may publish to the same topics,
and to no others. Topics that begin with \`$\` are refused.

**Limits:** 512 KiB a packet, 5,000 JSON values a payload, 100 topics a device. Topics, client ids and sessions belong to
the account. Changed credentials or topics, and a disabled device, take effect on live connections within 5 s.`;

const streams = `Measurements (\`_t\` is \`str\`) and states (\`sta\`) that devices send, over HTTP here or over MQTT (see
**mqtt**). Success means that a majority of the database has them in its journal.

\`POST /streams/\` and \`POST /status/\` serve firmware of the former platform: they answer \`{"response": "OK"}\`.`;

const storage = `Storage of a user that an administrator links once; clients then list its files and open them by links.

| provider | settings |
|---|---|
| \`s3\` | \`endpoint\`, \`region\`, \`bucket\`, \`access_key_id\`, \`secret_access_key\`, optional \`prefix\` |
| \`webdav\` | \`url\`, \`username\`, \`password\` |
| \`dropbox\` | \`access_token\` |
| \`local\` | \`path\`, relative to \`FILESTORE_LOCAL_ROOT/{account}\`; off where that is not set |`;

/** The sections of the reference, in its order. A section need not have operations. */
const descriptions: Readonly<Record<string, string>> = {
  projects: 'A project is the top of the hierarchy and holds services.',
  services: 'A service belongs to a project and holds groups.',
  groups: 'A group belongs to a service and holds assets and devices.',
  assets: 'An asset is a physical object with devices; it belongs to a group.',
  models: 'A model holds properties that its devices inherit. It belongs to the account alone.',
  devices: 'A device belongs to a group or to an asset, and sends streams. Its status is computed when it is read.',
  deviceconfigs: 'Configuration files of devices, each in any number of versions, which never change.',
  streams,
  mqtt,
  storage,
  catalogues: 'Values that device types and sensors usually have, and those that time zones can have.',
  apikeys: 'Keys of the users of the account. A lost key cannot be shown again: revoke it and issue another one.',
  root: 'Health, metrics and documentation at the root of the server, without a key.',
};

/** The tag objects of the sections. */
export const tags: readonly Schema[] = Object.entries(descriptions).map(([name, description]) => ({
  name,
  description,
}));
