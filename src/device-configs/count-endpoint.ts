import type { Endpoint } from '../http/context.js';
import { chooseListFormat } from '../http/negotiate.js';
import { configStatuses, max_config_text } from '../resources/device/configs.js';
import { device } from '../resources/index.js';
import { integer } from '../schema/fields/number.js';
import { choice, text } from '../schema/fields/text.js';
import { optional, required, withDocumentation } from '../schema/fields.js';
import { answerFormat, createListParser, filterParametersOf, type ListFormat } from '../schema/list-parameters.js';
import { describeObject } from '../schema/openapi/bodies.js';
import { countConfigs } from './counts.js';

const default_max = 100;
const query = new Map([
  [
    'max',
    withDocumentation(integer({ min: 1, max: 1000 }), {
      about: `Entries to show. Default: ${default_max}.`,
      example: default_max,
    }),
  ],
  ['format', answerFormat],
  ...filterParametersOf(device),
]);
const parse = createListParser(device, { params: query });

/** Creates the endpoint that counts devices by their configuration files (reference/device-configs.md#fleet). */
export function createConfigCounts(): Endpoint {
  return {
    operationId: 'countDeviceConfigs',
    method: 'get',
    path: '/devices/deviceconfigs/counts/',
    tag: 'deviceconfigs',
    summary: 'Count devices by the versions of their configuration files',
    scope: 'read',
    isCostly: true,
    query,
    pathFilters: device.pathFilters,
    result: { kind: 'list', type: countType },
    async handle(ctx) {
      const request = parse(ctx.query, ctx.now);
      const max = request.params.max === undefined ? default_max : request.max;
      const counts = await countConfigs(ctx, { ...request, max });
      const accepted = chooseListFormat(ctx.request.headers.accept);
      return { values: { ...counts, output: { format: (request.params.format as ListFormat) ?? accepted, columns } } };
    },
  };
}

const columns = ['name', 'desired', 'reported', 'status', 'count'];

const version = optional(text(max_config_text), { about: 'Version; null: none.', example: '1.0' });
const countSchema = describeObject(
  {
    name: required(text(max_config_text), { about: 'Name of the file.', example: 'pump.json' }),
    desired: version,
    reported: version,
    status: required(choice(...configStatuses), { about: 'State of the file on these devices.', example: 'applied' }),
    count: required(integer({ min: 0 }), { about: 'Number of devices.', example: 12 }),
  },
  ({ presence, type }) => (presence === 'optional' ? { ...type.schema, type: ['string', 'null'] } : type.schema),
  { title: 'DeviceConfigCount', description: 'Devices with the same versions of a file.' },
);

const countType = { name: 'entry', plural: 'entries', title: 'DeviceConfigCount', schema: countSchema };
