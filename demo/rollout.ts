import { ensureResource, type Send, sendOrThrow } from './api-client.js';
import { createConfig } from './fleet.js';

/** Filters of devices that are saved. */
const filters = [
  { name: 'Hot now', query: 'latest.temperature_c_from=30', description: 'Stations that last measured 30 °C or more' },
  { name: 'In a storm', query: 'latest.wind_m_s_from=8', description: 'Stations that last measured 8 m/s or more' },
];
const version = '2.1.0';
/** Stations that report their state. */
const reporting = 10;
/** Those of them that have the new version; the one before refuses it, those behind have the version before. */
const applied = 5;
/** Those of them that have answered a command. */
const answering = 3;

/**
 * Saves two filters, gives the stations of one continent a new version of their file, and answers for ten of them: most
 * have the file, one refuses it, three shall report more often and have answered a command. Does nothing if the last of
 * the filters exists.
 */
export async function rollOut(send: Send): Promise<void> {
  const { result: continents = [] } = await sendOrThrow(
    send,
    'GET',
    '/devices/counts/?by=id_service&enabled=true&max=1',
  );
  const [continent] = continents as { id_service?: string }[];
  const [first, last] = filters;
  if (continent?.id_service === undefined || first === undefined || last === undefined) return;
  await ensureResource(send, 'filters', first);
  const { total_documents = 0 } = await sendOrThrow(send, 'GET', `/filters/?name=${encodeURIComponent(last.name)}`);
  if (total_documents > 0) return;

  const stations = `enabled=true&id_service=${encodeURIComponent(continent.id_service)}`;
  const { name, ...file } = { ...createConfig(continent.id_service, '2.0.0'), version };
  await confirm(send, 'POST', `/devices/deviceconfigs/?${stations}`, { name, ...file });
  await confirm(send, 'PUT', `/devices/deviceconfigs/${name}/desired/?${stations}`, { version });
  const { result = [] } = await sendOrThrow(send, 'GET', `/devices/?${stations}&max=${reporting}`);
  for (const [index, { id_developer }] of result.entries()) {
    const path = `/devices/${encodeURIComponent(String(id_developer))}`;
    const reported =
      index > applied ? { version: '2.0.0' } : { version, ...(index === 0 && { error: 'bad checksum' }) };
    await sendOrThrow(send, 'PATCH', `${path}/state/reported/`, {
      report: { every_min: 30, compress: true },
      configs: { [name]: reported },
    });
    if (index < answering) {
      await sendOrThrow(send, 'PATCH', `${path}/state/`, { report: { every_min: 10 } });
      await answerCommand(send, path);
    }
  }
  await ensureResource(send, 'filters', last);
}

/** Asks how many devices a change concerns, and carries it out. */
async function confirm(send: Send, method: 'POST' | 'PUT', path: string, body: object): Promise<void> {
  const { details } = await sendOrThrow(send, method, path, body);
  await sendOrThrow(send, method, `${path}&confirm=${Number(details?.matched)}`, body);
}

async function answerCommand(send: Send, device: string): Promise<void> {
  const { details } = await sendOrThrow(send, 'POST', `${device}/commands/`, { name: 'clean_sensor' });
  const answer = { status: 'done', data: { seconds: 12 } };
  await sendOrThrow(send, 'POST', `${device}/commands/${String(details?.id)}/result/`, answer);
}
