import type { Endpoint } from '../http/context.js';
import { createCounting } from '../http/count-endpoint.js';
import { configStatuses, max_config_text } from '../resources/device/configs.js';
import { device } from '../resources/index.js';
import { integer } from '../schema/fields/number.js';
import { choice, text } from '../schema/fields/text.js';
import { optional, required } from '../schema/fields.js';
import { describeObject } from '../schema/openapi/bodies.js';
import { countConfigs } from './counts.js';

/** Creates the endpoint that counts devices by their configuration files (reference/device-configs.md#fleet). */
export function createConfigCounts(): Endpoint {
  return {
    operationId: 'countDeviceConfigs',
    path: '/devices/deviceconfigs/counts/',
    tag: 'deviceconfigs',
    summary: 'Count devices by the versions of their configuration files',
    ...createCounting(device, {
      schema: countSchema,
      count: async (ctx, request) => ({ ...(await countConfigs(ctx, request)), columns }),
    }),
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
