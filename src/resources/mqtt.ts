import { flag, integer, recordedTime, timestamp } from '../schema/fields/number.js';
import { max_identifier_length, text, textMatching } from '../schema/fields/text.js';
import { type FieldType, optional, required } from '../schema/fields.js';
import { defineListed, defineStored, usualChanges } from '../schema/resource.js';

const max_topic_bytes = 200;
/** The most that a topic or a filter may have, the last one included. */
export const max_levels = 100;

/** A password of 8 to 128 characters, stored only as a salted hash (reference/mqtt.md#credentials). */
function password(): FieldType {
  const { body, schema } = text(128, { min: 8 });
  return { body, stored: 'computed', schema: { ...schema, format: 'password' } };
}

/** Reports whether a text is a topic filter of at most 100 levels: `+` and `#` fill one, `#` only the last (§4.7). */
export function isTopicFilter(filter: string, max_bytes = max_topic_bytes): boolean {
  if (filter === '' || filter.includes('\0') || Buffer.byteLength(filter) > max_bytes) return false;
  const levels = filter.split('/');
  if (levels.length > max_levels) return false;
  return levels.every((level, index) => {
    if (level === '+') return true;
    if (level === '#') return index === levels.length - 1;
    return !level.includes('+') && !level.includes('#');
  });
}

/** The rules of a topic filter that a regular expression can express. */
const filterPattern = '^(?:#|(?:\\+|[^$+#/\\u0000][^+#/\\u0000]*)?(?:/(?:\\+|[^+#/\\u0000]*))*(?:/#)?)$';

/** A topic filter of at most 200 bytes that does not begin with `$` (reference/mqtt.md#topics). */
function topicFilter(): FieldType {
  const hint = 'an MQTT topic filter of at most 200 bytes that does not begin with $';
  return textMatching(max_topic_bytes, (filter) => isTopicFilter(filter) && !filter.startsWith('$'), hint, {
    pattern: filterPattern,
  });
}

/** The broker login of a device. A device has one, and usernames are unique across accounts (reference/mqtt.md#credentials). */
export const mqttcredentials = defineListed({
  name: 'credentials',
  plural: 'mqttcredentials',
  title: 'Credentials',
  example: { username: 'pump-1', password: 'open sesame' },
  fields: {
    username: required(text(100), { about: 'Unique across all accounts.' }),
    password: required(password(), { about: 'At least 8 characters; never shown.' }),
  },
  hidden: {
    device: required(text(max_identifier_length)),
    hash: required(text(200)),
    owner: required(text(50)),
    topics_change_until: optional(timestamp()),
  },
  parentCollections: { device: 'devices' },
  unique: [['parent'], ['username']],
  parentField: 'device',
  defaultSort: 'username',
  events: { ...usualChanges, shown: ['username'] },
});

/** A client that is connected to the broker (reference/mqtt.md#connections). */
export const connection = defineListed({
  name: 'connection',
  plural: 'mqtt_connections',
  title: 'MqttConnection',
  fields: {},
  readOnly: {
    client_id: required(text(256), {
      filter: true,
      about: 'What the client calls itself, or a random text.',
      example: 'pump-1',
    }),
    device: optional(text(max_identifier_length), {
      filter: true,
      about: 'The device that it has logged in as; absent for a key of several devices.',
      example: 'Pump@demo',
    }),
    address: required(text(100), { about: 'IP address of the client.', example: '192.0.2.7' }),
    connected_at: required(recordedTime(), { about: 'When it has logged in.' }),
    messages: required(integer({ min: 0 }), { about: 'Messages that it has published.', example: 42 }),
    drops: required(integer({ min: 0 }), { about: 'Messages from and to it that were dropped.', example: 0 }),
  },
  hidden: { connection: required(text(36)), instance: required(text(36)), is_ending: optional(flag()) },
  unique: [['account', 'client_id']],
  indexes: [['instance', 'is_ending']],
  defaultSort: 'client_id',
});

/** A topic filter granted to a device in addition to its streams and status (reference/mqtt.md#topics). */
export const topic = defineListed({
  name: 'topic',
  plural: 'mqtttopics',
  example: { name: 'plant/+/set' },
  fields: { name: required(topicFilter()) },
  readOnly: { created_at: required(recordedTime(), { filter: true, about: 'Time of creation.' }) },
  hidden: { device: required(text(max_identifier_length)), owner: required(text(50)), slot: optional(integer()) },
  parentCollections: { device: 'devices' },
  unique: [['parent', 'name']],
  parentField: 'device',
  defaultSort: 'name',
  events: { insert: 'created', delete: 'deleted', shown: ['name'] },
});

/** A retained message; it goes with the device whose topic it is, others have no `device` (reference/mqtt.md#delivery). */
export const retainedmessage = defineStored({
  name: 'retainedmessage',
  plural: 'mqtt_retained',
  parentCollections: { device: 'devices' },
  isDerived: true,
  indexes: [['parent']],
});
