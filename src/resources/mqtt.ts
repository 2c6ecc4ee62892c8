import { timestamp } from '../schema/fields/number.js';
import { max_identifier_length, text } from '../schema/fields/text.js';
import { type FieldType, required } from '../schema/fields.js';
import { defineListed } from '../schema/resource.js';

const max_topic_bytes = 200;

/** A password of 8 to 128 characters; nothing of it is stored but a salted hash (contract 9). */
function password(): FieldType {
  const { body, schema } = text(128, { min: 8 });
  return { body, stored: 'computed', schema: { ...schema, format: 'password' } };
}

/** Whether a text is an MQTT topic filter (MQTT 3.1.1 §4.7): `+` and `#` fill a level, `#` only the last. */
export function isTopicFilter(given: string, max_bytes = max_topic_bytes): boolean {
  if (given === '' || given.includes('\0') || Buffer.byteLength(given) > max_bytes) return false;
  const levels = given.split('/');
  return levels.every((level, index) => {
    if (level === '+') return true;
    if (level === '#') return index === levels.length - 1;
    return !level.includes('+') && !level.includes('#');
  });
}

/** What a regular expression can say of a topic filter. */
const filterPattern = '^(?:#|(?:\\+|[^$+#/\\u0000][^+#/\\u0000]*)?(?:/(?:\\+|[^+#/\\u0000]*))*(?:/#)?)$';

/** Of at most 200 bytes, not beginning with `$` (contract 9). */
function topicFilter(): FieldType {
  const kind = text(max_topic_bytes);
  const check: FieldType['body'] = (value, path, faults) => {
    const given = kind.body(value, path, faults);
    if (typeof given === 'string' && (!isTopicFilter(given) || given.startsWith('$'))) {
      faults[path] = 'must be an MQTT topic filter of at most 200 bytes that does not begin with $';
    }
    return given;
  };
  const schema = { ...kind.schema, pattern: filterPattern, description: 'An MQTT topic filter of at most 200 bytes.' };
  return { ...kind, body: check, query: check, schema };
}

/** What a device logs in with at the broker; one set for a device, and a username is in use once (§2.10, contract 9). */
export const mqttcredentials = defineListed({
  name: 'credentials',
  plural: 'mqttcredentials',
  fields: { username: required(text(100)), password: required(password()) },
  hidden: { device: required(text(max_identifier_length)), hash: required(text(200)), owner: required(text(50)) },
  parentCollections: { device: 'devices' },
  unique: [['parent'], ['username']],
  parentField: 'device',
  defaultSort: 'username',
});

/** A topic filter that a device may use besides its own streams and status (§2.10, contract 9). */
export const topic = defineListed({
  name: 'topic',
  plural: 'mqtttopics',
  fields: { name: required(topicFilter()) },
  readOnly: { created_at: required(timestamp()) },
  hidden: { device: required(text(max_identifier_length)), owner: required(text(50)) },
  parentCollections: { device: 'devices' },
  unique: [['parent', 'name']],
  parentField: 'device',
  defaultSort: 'name',
});
