import { OpaqueJson } from '../db/opaque-json.js';
import type { FieldErrors } from '../errors.js';
import { commandId } from '../resources/command.js';
import { command } from '../resources/index.js';
import { parseFields } from '../schema/body.js';
import { choice, text } from '../schema/fields/text.js';
import { optional, required, type Values } from '../schema/fields.js';

const max_payload_bytes = 32 * 1024;

/** The body of an answer of a device. */
export const commandResult = {
  ...command,
  title: 'CommandResult',
  readOnly: {},
  example: { status: 'done', data: { uptime: 3 } },
  fields: {
    id: optional(text(36), { about: 'Id of the command, if it is given, as in the path.', example: commandId }),
    status: required(choice('done', 'failed'), { about: 'How the command ended.', example: 'done' }),
    ...(command.fields.data && {
      data: optional(command.fields.data.type, { about: 'What came of it, at most 32 KiB as compact JSON.' }),
    }),
  },
};

/** Parses a new command. @throws AppError invalid (4003) */
export function parseCommand(body: Values): Values {
  return parseFields(command, body, checkPayload);
}

/** Parses the answer of a device. @throws AppError invalid (4003) */
export function parseResult(body: Values, check?: (values: Values, faults: FieldErrors) => void) {
  const { id, status, data } = parseFields(commandResult, body, (values, faults) => {
    checkPayload(values, faults);
    check?.(values, faults);
  });
  return { id: id as string | undefined, status: status as 'done' | 'failed', result: data };
}

function checkPayload({ data }: Values, faults: FieldErrors): void {
  if (data !== undefined && new OpaqueJson(data).size > max_payload_bytes)
    faults.data ??= 'must not be larger than 32 KiB';
}
