// Copies an account from the former platform, or from another installation of this service: models, projects, services,
// groups, assets, devices, configuration files, MQTT topics and streams. Run it again to resume: it keeps what is there.
//
//   OLD_URL=https://old.example OLD_KEY=… OLD_HEADER=carriots.apikey UNTIL=1795330000 \
//   DEVICE_PLATFORM_URL=http://127.0.0.1:3000 API_KEY=… ACCOUNT=Acme.Acme node migrate.mjs
//
// UNTIL, in seconds since 1970, is when the devices began to send to the new address; later streams are not copied.
import { createHmac } from 'node:crypto';

const { OLD_URL, OLD_KEY, OLD_HEADER = 'service.apikey', DEVICE_PLATFORM_URL, API_KEY, ACCOUNT } = process.env;
if (!OLD_URL || !OLD_KEY || !DEVICE_PLATFORM_URL || !API_KEY || !ACCOUNT) {
  console.error('set OLD_URL, OLD_KEY, DEVICE_PLATFORM_URL, API_KEY and ACCOUNT');
  process.exit(2);
}
const until = Number(process.env.UNTIL ?? Math.floor(Date.now() / 1000));
const page_size = 500;

const common = ['description', 'enabled'];
const deviceFields = `type properties sensor firmware checksum time_zone networking lon lat frequency_status
  frequency_stream`.split(/\s+/);
/** Parents before children. `fields` are copied, `links` name another object. */
const types = [
  { type: 'models', fields: [...common, 'properties'], links: [] },
  { type: 'projects', fields: [...common, 'id_customer'], links: [] },
  { type: 'services', fields: common, links: ['id_project'] },
  { type: 'groups', fields: common, links: ['id_service'] },
  { type: 'assets', fields: [...common, 'properties'], links: ['id_group'] },
  { type: 'devices', fields: [...common, ...deviceFields], links: ['id_group', 'id_asset', 'id_model'] },
];
const streamFields = ['at', '_t', 'protocol', 'data'];
let failures = 0;
let skipped = 0;

/** Sends a request and returns its body. @throws Error with `code` and `details` if the answer is no success */
async function send(url, headers, method, path, body) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(url + path, { method, headers, ...(text !== undefined && { body: text }) });
  const bytes = Buffer.from(await response.arrayBuffer());
  if (response.ok) return bytes;
  const { code, details } = bytes.toString().startsWith('{') ? JSON.parse(bytes.toString()) : {};
  throw Object.assign(new Error(`${method} ${path}: ${response.status} ${bytes}`), { code, details });
}
const download = (path) => send(OLD_URL, { [OLD_HEADER]: OLD_KEY, Accept: '*/*' }, 'GET', path);
const fromOld = async (path) => JSON.parse(await download(path));
const toNew = async (method, path, body) =>
  JSON.parse(await send(DEVICE_PLATFORM_URL, { 'service.apikey': API_KEY }, method, path, body));

const getNew = (path) => toNew('GET', path);

/** Yields a list of the former platform, or of another one by `list`, page by page. */
async function* pagesOf(path, query = '', list = fromOld) {
  for (let offset = 0; ; offset += page_size) {
    const { result } = await list(`${path}?max=${page_size}&offset=${offset}${query}`);
    yield result;
    if (result.length < page_size) return;
  }
}

/** Reports a failure and goes on, so that one object does not stop the others. */
async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    failures++;
    console.error(error.message);
    return false;
  }
}

const pick = (object, fields) =>
  Object.fromEntries(fields.map((name) => [name, object[name]]).filter(([, value]) => value != null && value !== ''));
const nameOf = (id) => id.slice(0, id.lastIndexOf('@'));
const moved = (id) => `${nameOf(id)}@${ACCOUNT}`;
const pathOf = (type, id) => `/${type}/${encodeURIComponent(id)}/`;

/** Creates an object under its former identifier, unless it exists. Enabled and without a checksum it takes old streams. */
async function copy({ type, fields, links }, { id_assets, ...old }) {
  const id = moved(old.id_developer);
  const exists = await toNew('GET', pathOf(type, id)).catch((error) => {
    if (error.code !== 4041) throw error;
    return false;
  });
  if (exists) return false;
  const linked = { ...old, id_asset: old.id_asset || id_assets };
  if (linked.id_asset) linked.id_group = type === 'devices' ? undefined : old.id_group;
  const parents = links.filter((name) => linked[name]).map((name) => [name, moved(linked[name])]);
  // the identifier is made from the name at creation; `finish` sets the name that the object has now
  const body = { ...pick(old, fields), ...Object.fromEntries(parents), name: nameOf(id), enabled: true };
  await toNew('POST', `/${type}/`, { ...body, checksum: undefined });
  return true;
}

/**
 * Sends streams in as few requests as the limits of a body allow. Those that are refused are reported and left out.
 * @returns the number of streams that were left out
 */
async function sendStreams(path, streams) {
  if (streams.length === 0) return 0;
  try {
    await toNew('POST', path, streams);
    return 0;
  } catch (error) {
    const { code, details = {}, message } = error;
    const isTooLarge = code === 4131 || details.body !== undefined;
    if (isTooLarge && streams.length > 1) {
      const half = Math.ceil(streams.length / 2);
      return (await sendStreams(path, streams.slice(0, half))) + (await sendStreams(path, streams.slice(half)));
    }
    // details name a stream by its place in the array: `12.data`
    const refused = new Set(Object.keys(details).map((name) => Number.parseInt(name, 10)));
    const rest = isTooLarge ? [] : streams.filter((_, index) => !refused.has(index));
    if (!isTooLarge && (code !== 4003 || rest.length === streams.length)) throw error;
    console.error(`${message}\n  left out: ${streams.length - rest.length} streams`);
    return streams.length - rest.length + (await sendStreams(path, rest));
  }
}

/** JSON with sorted keys (RFC 8785). */
const canonical = (value) => JSON.stringify(value, sortKeys);
const sortKeys = (_, value) =>
  value === null || typeof value !== 'object' || Array.isArray(value)
    ? value
    : Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
/** What makes two streams the same one. */
const identityOf = ({ at, _t, data }) => canonical([Number(at), _t || 'str', data]);

/** Yields the streams of a device in the order of `at`, in pieces that do not divide those of one time. */
async function* piecesOf(path) {
  const piece = [];
  for await (const page of pagesOf(path, `&sort=at&order=1&at_to=${until}`)) {
    piece.push(...page);
    const border = piece.findIndex(({ at }) => at === piece.at(-1).at);
    if (border > 0) yield piece.splice(0, border);
  }
  if (piece.length > 0) yield piece;
}

/** Copies the streams that are not there yet, whatever arrived on either side since the last run. */
async function copyStreams(from, to, checksum) {
  let found = 0;
  let leftOut = 0;
  for await (const piece of piecesOf(from)) {
    const present = new Map();
    const range = `&at_from=${piece[0].at}&at_to=${piece.at(-1).at}`;
    for await (const page of pagesOf(to, range, getNew))
      for (const stream of page) present.set(identityOf(stream), (present.get(identityOf(stream)) ?? 0) + 1);
    const missing = piece.filter((stream) => {
      const count = present.get(identityOf(stream)) ?? 0;
      present.set(identityOf(stream), count - 1);
      return count <= 0;
    });
    found += piece.length;
    leftOut += await sendStreams(
      to,
      missing.map((stream) => ({
        ...pick(stream, streamFields),
        // a device that got its checksum in an earlier run takes streams of protocol v3 with theirs only
        ...(checksum && { checksum: createHmac('sha1', checksum).update(canonical(stream.data)).digest('hex') }),
      })),
    );
  }
  skipped += leftOut;
  const { total_documents } = await getNew(`${to}?max=1&at_to=${until}`);
  if (total_documents < found - leftOut)
    throw new Error(`${to}: ${total_documents} streams of ${found}, ${leftOut} left out`);
}

/** Copies configuration files, MQTT topics and streams of a device. */
async function copyContent({ id_developer }) {
  const from = pathOf('devices', id_developer);
  const to = pathOf('devices', moved(id_developer));
  const keyOf = ({ name, version }) => `${encodeURIComponent(name)}/${encodeURIComponent(version)}/`;
  const { result: present } = await toNew('GET', `${to}deviceconfigs/`);
  const presentKeys = new Set(present.map(keyOf));
  for await (const page of pagesOf(`${from}deviceconfigs/`, '&sort=created_at'))
    for (const config of page.filter((entry) => !presentKeys.has(keyOf(entry)))) {
      const file = (await download(`${from}deviceconfigs/${keyOf(config)}`)).toString('base64');
      await toNew('POST', `${to}deviceconfigs/`, { ...pick(config, ['name', 'version', 'date_deployed']), file });
    }

  const { result: topics } = await fromOld(`${pathOf('mqttdevices', id_developer)}topics/`);
  for (const { name } of topics)
    await toNew('POST', `${pathOf('mqttdevices', moved(id_developer))}topics/`, { name }).catch((error) => {
      if (error.details?.name !== 'is taken') throw error;
    });

  const { checksum } = await getNew(to);
  await copyStreams(`${from}streams/`, `${to}streams/`, checksum);
}

/** Sets what would have been in the way before: the name after a rename, `enabled`, and the checksum of a device. */
async function finish({ type }, old) {
  const path = pathOf(type, moved(old.id_developer));
  const wanted = pick(old, type === 'devices' ? ['name', 'enabled', 'checksum'] : ['name', 'enabled']);
  const { version, ...current } = await toNew('GET', path);
  const isDifferent = Object.entries(wanted).some(([name, value]) => current[name] !== value);
  if (isDifferent) await toNew('PUT', path, { ...wanted, version });
}

const objects = [];
for (const description of types) {
  const found = [];
  for await (const page of pagesOf(`/${description.type}/`)) found.push(...page);
  let created = 0;
  for (const old of found) if (await attempt(() => copy(description, old))) created++;
  console.log(`${description.type}: ${found.length} found, ${created} created`);
  objects.push([description, found]);
}
for (const device of objects.at(-1)[1]) await attempt(() => copyContent(device));
// not before everything else is there, and children first: nothing below a disabled object takes streams
if (failures === 0)
  for (const [description, found] of objects.toReversed())
    for (const old of found) await attempt(() => finish(description, old));
const outcome = skipped === 0 ? 'everything is copied' : `everything is copied but ${skipped} streams: see above`;
console.log(failures === 0 ? outcome : `${failures} failures: see above, then run this again`);
process.exitCode = failures === 0 ? 0 : 1;
