import { failures } from '../../errors.js';

const requests = `Every path below {base_url} needs an API key. Paths work with and without the closing slash;
identifiers are \`name@account\`, percent-encoded in paths. Responses are JSON, or XML if \`Accept\` prefers it.
\`HEAD\` works for every \`GET\`. \`OPTIONS\` lists the methods of a path and needs no key. Other methods answer 405
with code ${failures.methodNotAllowed.code}, unknown paths 404 with code ${failures.notFound.code}.

**Bodies** are read as JSON whatever their \`Content-Type\` says; streams may also be sent as XML. Read-only fields are accepted and ignored. On create
\`null\` counts as absent; on update it unsets an optional field, and absent fields keep their value.

**Rules beyond the schemas.** The schemas are flat so that programs can be generated from them. The service also demands
that parents exist, that names are free, that \`_from\` is not after \`_to\`, and what the descriptions say. Unknown,
repeated and empty query parameters answer code ${failures.badParameter.code}. With \`fields\` objects have the members
that it names, and no others that the schemas require.

**Numbers** are IEEE 754 doubles: send integers beyond 2^53 as text. **Times** are seconds since 1970-01-01 UTC.

**XML:** the root of an answer is \`response\`, that of an object its type. The fields of an updated object stand directly
in \`details\`.

**Examples** are those of an account \`demo\`; each one succeeds after those that create what it names.`;

const mqtt = `**Connect** with MQTT 3.1, 3.1.1 or 5 to \`MQTT_PORT\` (by default 1883), over TLS to \`MQTTS_PORT\` (8883, where
it is configured), or over WebSocket to \`/mqtt\` of this server (subprotocol \`mqtt\` or \`mqttv3.1\`). Username and
password are the credentials of the device. Firmware of the former platform uses an API key as the username and an empty
password.

**Publish** streams as JSON. \`{id}\` is the identifier of the device with \`%\`, \`/\`, \`+\`, \`#\` and a \`$\` at its
beginning percent-encoded.

| topic | stores |
|---|---|
| \`{id}/streams\` | data streams |
| \`{id}/status\` | status streams |
| \`{key}/streams\`, \`{key}/status\` | the same for a login with an API key; each stream names its \`device\` |

A payload is a stream (\`{"data": {"bar": 2.4}, "at": 1700000000}\`), an array of 1 to 1,000 of them, or bare data
(\`{"bar": 2.4}\`). \`protocol\` is \`mqtt\` unless given. At QoS 1 and 2 the acknowledgement means that the database has
stored it. What does not validate or is not allowed is dropped, counted in \`mqtt_dropped_total{reason,field}\` at
\`/metrics\`, and acknowledged, with a reason code to clients of MQTT 5.

\`\`\`sh
mosquitto_pub -q 1 -i pump-1 -u pump-1 -P 'open sesame' -t 'Pump@demo/streams' -m '{"bar": 2.4}'
\`\`\`

**Subscribe** to \`{id}/streams\`, \`{id}/status\` and the topics granted to the device. A device may publish to the same topics,
and to no others. Topics that begin with \`$\` are refused.

**Limits:** 512 KiB a packet, 5,000 JSON values a payload, 100 topics a device. Topics, client ids and sessions belong to
the account. Changed credentials or topics, and a disabled device, take effect on live connections within 5 s.`;

/** Sections of the reference page beside the operations, by heading. */
const sections: Readonly<Record<string, string>> = { Requests: requests, MQTT: mqtt };

/** The description of the interface in Markdown (reference/configuration.md#api-description). */
export const introduction = [
  'Manages fleets of devices: their hierarchy, state, configuration files and streams.',
  ...Object.entries(sections).map(([heading, text]) => `## ${heading}\n\n${text}`),
].join('\n\n');
