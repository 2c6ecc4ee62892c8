import { encodeForTopic, quoteForShell } from '../lib/encode.js';

/** Addresses and credentials by which a device reaches the service. */
export interface Access {
  /** Identifier of the device. */
  id: string;
  /** Address of the interface. */
  url: string;
  host: string;
  /** Ports of the broker, without and with TLS; empty: there is none. */
  mqtt_port: string;
  mqtts_port: string;
  key: string;
  /** Login at the broker. */
  username: string;
  password: string;
}

const data = { temperature: 21.5 };

/** Programs that send as the device, once but for Node.js, which keeps sending so that a chart moves. */
export function buildSnippets(access: Access): { name: string; text: string }[] {
  return [
    { name: 'curl', text: curlOf(access) },
    { name: 'Node.js', text: nodeOf(access) },
    ...(access.mqtt_port === '' ? [] : [{ name: 'mosquitto_pub', text: publishCommand(access, 'streams', data) }]),
    ...(access.mqtts_port === ''
      ? []
      : [{ name: 'mosquitto_pub over TLS', text: publishCommand({ ...access, mqtt_port: '' }, 'streams', data) }]),
    { name: 'Python', text: pythonOf(access) },
    { name: 'Arduino', text: arduinoOf(access) },
  ];
}

const streamsUrl = ({ url, id }: Access) => `${url}/devices/${encodeURIComponent(id)}/streams/`;

function curlOf(access: Access): string {
  const words = ['-H', `service.apikey: ${access.key}`, streamsUrl(access), '-d', JSON.stringify({ data })];
  return ['curl', ...words].map(quoteForShell).join(' ');
}

/** A command that publishes to a topic of the device, over TLS where there is no port without it. */
function publishCommand(access: Omit<Access, 'url' | 'key'>, kind: string, payload: object): string {
  const { id, host, mqtt_port, mqtts_port, username, password } = access;
  const port = mqtt_port === '' ? ['-p', mqtts_port, '--tls-use-os-certs'] : ['-p', mqtt_port];
  const words = ['-h', host, ...port, '-u', username, '-P', password, '-q', '1'];
  const topic = `${encodeForTopic(id)}/${kind}`;
  return ['mosquitto_pub', ...words, '-t', topic, '-m', JSON.stringify(payload)].map(quoteForShell).join(' ');
}

// strings of JSON are strings of JavaScript, Python and C++
const quote = (text: string) => JSON.stringify(text);

function nodeOf(access: Access): string {
  return `// save as device.mjs, and run: node device.mjs
const url = ${quote(streamsUrl(access))};
const headers = { 'service.apikey': ${quote(access.key)}, 'Content-Type': 'application/json' };
setInterval(async () => {
  const data = { temperature: 20 + 2 * Math.random() };
  const sent = fetch(url, { method: 'POST', headers, body: JSON.stringify({ data }) });
  console.log(await sent.then(({ status }) => status, ({ message }) => message), data);
}, 2000);`;
}

function pythonOf(access: Access): string {
  return `import json
from urllib.request import Request, urlopen

request = Request(
    ${quote(streamsUrl(access))},
    json.dumps({"data": {"temperature": 21.5}}).encode(),
    {"service.apikey": ${quote(access.key)}, "Content-Type": "application/json"},
)
print(urlopen(request).read().decode())`;
}

function arduinoOf(access: Access): string {
  return `#include <HTTPClient.h>
#include <WiFi.h>

void setup() {
  Serial.begin(115200);
  WiFi.begin("NETWORK", "PASSWORD");
  while (WiFi.status() != WL_CONNECTED) delay(500);
}

void loop() {
  HTTPClient http;
  http.begin(${quote(streamsUrl(access))});
  http.addHeader("service.apikey", ${quote(access.key)});
  http.addHeader("Content-Type", "application/json");
  Serial.println(http.POST(${quote(JSON.stringify({ data }))}));
  http.end();
  delay(60000);
}`;
}
