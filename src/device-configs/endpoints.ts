import { findDesiredConfigs } from '../device-state/changes.js';
import { type ChangeState, findState } from '../device-state/store.js';
import { takeShare } from '../http/admission.js';
import { createSelection, toBulkAnswer } from '../http/bulk-endpoints.js';
import { describeRange } from '../http/byte-range.js';
import type { Endpoint, RequestContext } from '../http/context.js';
import { isNotModified } from '../http/entity-tags.js';
import { createListing } from '../http/list-request.js';
import { parseExplicitFormat } from '../http/negotiate.js';
import { createShares } from '../lib/shares.js';
import { applyToMatches } from '../objects/bulk/apply-to-matches.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson, Page } from '../objects/page.js';
import { listChildren } from '../objects/select/lists.js';
import { device, deviceconfig } from '../resources/index.js';
import { parseFields } from '../schema/body.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { describeIdentifier } from '../schema/resource.js';
import { getString } from '../serialize/bson.js';
import { formatContentName, saveContent } from './contents.js';
import { createConfigCounts } from './counts.js';
import { describeDesired, desiredConfigEndpoints, parseVersion } from './desired-endpoints.js';
import { selectConfigs, storeConfigs } from './many.js';
import { createConfig, describeFile, findConfig, loadConfig } from './store.js';

const limit_bytes = 16 * 1024 * 1024;
/** Bytes of files that are being sent: each is in memory until its client has read it. */
const max_download_bytes = 128 * 1024 * 1024;
/** Downloads of one account that wait. */
const max_waiting_downloads = 200;
const all = '/devices/{device_id_developer}/deviceconfigs/';

const idOf = ({ path }: RequestContext) => path.device_id_developer ?? '';
const ofDevice = { device_id_developer: describeIdentifier(device) };
const { name, version } = deviceconfig.fields;
const ofFile = { ...ofDevice, ...(name && { file_name: name.type }) };
const shared = { tag: 'deviceconfigs', pathParameters: ofDevice } as const;
const result = { kind: 'file', type: deviceconfig } as const;
const ofFiles = { ...shared, method: 'get', scope: 'read', isForDevices: true, result } as const;

/** Creates the handler of downloads, whose bytes accounts share. */
function createDownload(): Endpoint['handle'] {
  const downloads = createShares({ capacity: max_download_bytes, max_waiting: max_waiting_downloads });

  return async (ctx) => {
    const { file_name = '', file_version } = ctx.path;
    const { _id, size } = await findConfig(ctx, idOf(ctx), file_name, file_version);
    const release = await takeShare(downloads, ctx, size);
    if (ctx.response.destroyed) release();
    ctx.response.once('close', release);
    const document = await loadConfig(ctx, _id);
    if (parseExplicitFormat(ctx.request.headers.accept) !== undefined) return { document: document.bson };
    sendFile(ctx, document);
    return undefined;
  };
}

/** Creates the endpoints for configuration files (reference/device-configs.md#upload, #listing, #download, #delivery, #fleet). */
export function deviceConfigEndpoints(changeState: ChangeState): Endpoint[] {
  const downloading = { ...ofFiles, handle: createDownload() };
  return [
    {
      ...shared,
      operationId: 'createDeviceConfig',
      method: 'post',
      path: all,
      summary: 'Store a version of a configuration file',
      scope: 'write',
      body: { schema: describeBody(deviceconfig, false), updating: false, limit_bytes },
      result: {
        kind: 'status',
        success: 'stored',
        message: 'Device_config created',
        details: deviceconfig,
        hasLocation: true,
      },
      async handle(ctx) {
        const values = parseFields(deviceconfig, ctx.body);
        const document = await createConfig(ctx, idOf(ctx), values);
        return { document, location: ['devices', idOf(ctx), 'deviceconfigs', `${values.name}`, `${values.version}`] };
      },
    },
    {
      ...shared,
      operationId: 'listDeviceConfigs',
      path: all,
      summary: 'List the configuration files of a device',
      scope: 'read',
      isForDevices: true,
      ...createListing(deviceconfig, async (ctx, request) => {
        const parent = { parent: device, field: 'device', id: idOf(ctx) };
        return appendDesiredMarks(ctx, await listChildren(ctx, deviceconfig, request, parent), idOf(ctx));
      }),
    },
    {
      ...downloading,
      operationId: 'downloadLatestDeviceConfig',
      path: `${all}{file_name}/`,
      pathParameters: ofFile,
      summary: 'Download the latest version of a configuration file',
    },
    {
      ...downloading,
      operationId: 'downloadDeviceConfig',
      path: `${all}{file_name}/{file_version}/`,
      pathParameters: { ...ofFile, ...(version && { file_version: version.type }) },
      summary: 'Download a version of a configuration file',
    },
    ...desiredConfigEndpoints(changeState),
    ...manyConfigEndpoints(),
    createConfigCounts(),
  ];
}

/** Sends the decoded bytes, or the requested range of them (RFC 9110 §14). */
function sendFile(
  { request, response }: RequestContext,
  { file, name, checksum }: { file: Buffer; name: string; checksum: string },
): void {
  const tag = `"${checksum}"`;
  response.vary('Accept');
  if (isNotModified(request.headers['if-none-match'], tag)) {
    response.status(304).set({ ETag: tag, 'Accept-Ranges': 'bytes' }).end();
    return;
  }
  const { status, headers, start, end } = describeRange(request.headers, tag, file.length);
  response.attachment(name).status(status).set(headers);
  response.setHeader('Content-Type', 'application/octet-stream');
  response.end(file.subarray(start, end + 1));
}

/** The BSON element `desired: true`, and the end of a document. */
const mark = Buffer.from('\x08desired\0\x01\0', 'latin1');

/** Adds `desired: true` to the versions of files that a device shall have (reference/device-configs.md#listing). */
async function appendDesiredMarks(ctx: OperationContext, page: Page, id: string): Promise<Page> {
  const { store } = ctx;
  const node = await store.loader(device.plural).locate(ctx, id);
  const { desired } = node === undefined ? {} : await findState(store.db, node._id);
  const versions = findDesiredConfigs(desired ?? {});
  if (versions.size === 0) return page;
  const isDesired = (bson: Bson) => versions.get(getString(bson, 'name') ?? '') === getString(bson, 'version');
  async function* markBatches(): AsyncGenerator<readonly Bson[]> {
    for await (const batch of page.batches) yield batch.map((bson) => (isDesired(bson) ? appendMark(bson) : bson));
  }
  return { ...page, batches: markBatches() };
}

function appendMark(bson: Bson): Bson {
  const marked = Buffer.concat([bson.subarray(0, -1), mark]);
  marked.writeInt32LE(marked.length);
  return marked;
}

/** Creates the endpoints that give a file to many devices (reference/device-configs.md#many-devices). */
function manyConfigEndpoints(): Endpoint[] {
  const { operation, parse, details } = createSelection(device);
  const onMany = { ...operation, tag: 'deviceconfigs' } as const;
  return [
    {
      ...onMany,
      operationId: 'createManyDeviceConfigs',
      method: 'post',
      path: '/devices/deviceconfigs/',
      summary: 'Store a version of a configuration file for all devices that match',
      description: 'Takes at least one filter. Stores nothing unless `confirm` is the number of matches.',
      body: { schema: describeBody(deviceconfig, false), updating: false, limit_bytes },
      result: { kind: 'status', success: 'created', message: 'Device_configs created', details },
      async handle(ctx) {
        const request = parse(ctx.query, ctx.now);
        const { file: base64, ...fields } = parseFields(deviceconfig, ctx.body);
        const { file, ...described } = describeFile(String(base64));
        const shared_content = formatContentName(ctx.account, file);
        if (request.params.confirm !== undefined) await saveContent(ctx, shared_content, file);
        const values = { ...fields, ...described, shared_content };
        return toBulkAnswer(await applyToMatches(ctx, device, { request, values, action: storeConfigs }));
      },
    },
    {
      ...onMany,
      operationId: 'updateManyDesiredDeviceConfigs',
      method: 'put',
      path: '/devices/deviceconfigs/{file_name}/desired/',
      ...(name && { pathParameters: { file_name: name.type } }),
      summary: 'Say which version of a configuration file all devices that match shall have',
      body: { schema: describeDesired(version?.type), updating: true },
      result: { kind: 'status', success: 'updated', message: 'state updated', details },
      async handle(ctx) {
        const request = parse(ctx.query, ctx.now);
        const values = { name: ctx.path.file_name ?? '', version: parseVersion(ctx.body) };
        return toBulkAnswer(await applyToMatches(ctx, device, { request, values, action: selectConfigs }));
      },
    },
  ];
}
