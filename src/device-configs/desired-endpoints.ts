import { selectConfig } from '../device-state/changes.js';
import { showState, stateUpdated } from '../device-state/endpoints.js';
import type { ChangeState } from '../device-state/store.js';
import { createFieldErrors, throwIfAny } from '../errors.js';
import type { Endpoint } from '../http/context.js';
import { assertExists } from '../objects/resources.js';
import { device, deviceconfig } from '../resources/index.js';
import type { FieldType, Schema, Values } from '../schema/fields.js';
import { describeClosed } from '../schema/openapi/bodies.js';
import { describeIdentifier } from '../schema/resource.js';
import { assertFileExists, findVersion } from './store.js';

/** Creates the endpoint that says which version of a file a device shall have (reference/device-configs.md#delivery). */
export function desiredConfigEndpoints(changeState: ChangeState): Endpoint[] {
  const { name, version } = deviceconfig.fields;
  return [
    {
      operationId: 'updateDesiredDeviceConfig',
      method: 'put',
      path: '/devices/{device_id_developer}/deviceconfigs/{file_name}/desired/',
      pathParameters: { device_id_developer: describeIdentifier(device), ...(name && { file_name: name.type }) },
      tag: 'deviceconfigs',
      givesWay: true,
      summary: 'Say which version of a configuration file a device shall have',
      description:
        'The version is shown to the device as `configs.{file_name}` of its desired state; `null` takes it back.',
      scope: 'write',
      body: { schema: describeDesired(version?.type), updating: true },
      result: stateUpdated,
      async handle(ctx) {
        const wanted = parseVersion(ctx.body);
        const { device_id_developer: id = '', file_name = '' } = ctx.path;
        const node = await assertExists(ctx, device, id);
        await assertFileExists(ctx, node._id, file_name);
        const config =
          wanted === null ? undefined : await findVersion(ctx, node._id, { name: file_name, version: wanted });
        return showState(ctx, await changeState(node, (state) => selectConfig(state, file_name, config, ctx)));
      },
    },
  ];
}

/** Parses the wanted version; null: none. @throws AppError invalid (4003) */
export function parseVersion(body: Values): string | null {
  const faults = createFieldErrors();
  for (const key of Object.keys(body)) if (key !== 'version') faults[key] = 'unknown field';
  const { version } = body;
  if (version === undefined) faults.version = 'is required';
  else if (version !== null) deviceconfig.fields.version?.type.body(version, 'version', faults);
  throwIfAny('invalid', faults);
  return version as string | null;
}

/** Describes the body with the wanted version. */
export function describeDesired(type: FieldType | undefined): Schema {
  const version = {
    ...type?.schema,
    type: ['string', 'null'],
    description: 'A stored version of the file; `null`: the device need not have the file.',
    examples: ['1.0'],
  };
  const examples = [{ version: '1.0' }];
  return describeClosed('DesiredDeviceConfigUpdate', 'A version of the file.', { version }, { examples });
}
