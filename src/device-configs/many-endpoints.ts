import { createSelection, toBulkAnswer } from '../http/bulk-endpoints.js';
import type { Endpoint } from '../http/context.js';
import { applyToMatches } from '../objects/bulk/apply-to-matches.js';
import { device, deviceconfig } from '../resources/index.js';
import { parseFields } from '../schema/body.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { body_limit_bytes } from '../schema/operation.js';
import { formatContentName, saveContent } from './contents.js';
import { describeDesired, parseVersion } from './desired-endpoints.js';
import { selectConfigs, storeConfigs } from './many.js';
import { describeFile } from './store.js';

/** Creates the endpoints that give a file to many devices (reference/device-configs.md#many-devices). */
export function manyConfigEndpoints(limit_bytes: number): Endpoint[] {
  const { name, version } = deviceconfig.fields;
  const { operation, parse, details } = createSelection(device);
  const shared = { ...operation, tag: 'deviceconfigs' } as const;
  return [
    {
      ...shared,
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
      ...shared,
      operationId: 'updateManyDesiredDeviceConfigs',
      method: 'put',
      path: '/devices/deviceconfigs/{file_name}/desired/',
      ...(name && { pathParameters: { file_name: name.type } }),
      summary: 'Say which version of a configuration file all devices that match shall have',
      body: { schema: describeDesired(version?.type), updating: true, limit_bytes: body_limit_bytes },
      result: { kind: 'status', success: 'updated', message: 'state updated', details },
      async handle(ctx) {
        const request = parse(ctx.query, ctx.now);
        const values = { name: ctx.path.file_name ?? '', version: parseVersion(ctx.body) };
        return toBulkAnswer(await applyToMatches(ctx, device, { request, values, action: selectConfigs }));
      },
    },
  ];
}
