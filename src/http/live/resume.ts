import type { IncomingMessage } from 'node:http';
import { createFieldErrors, throwIfAny } from '../../errors.js';
import { textMatching } from '../../schema/fields/text.js';
import { type FieldType, type Values, withDocumentation } from '../../schema/fields.js';

/** Describes live feeds in the OpenAPI document. */
export const feedDescription =
  'Server-sent events: `id`, `event`, and `data` as one line of JSON, whatever `Accept` says. A comment comes at least every 15 s. `Last-Event-ID` or `after` resumes without gap or repetition. The event `overflow` ends the feed of a reader that is more than 1,000 entries or 1 MiB behind.';

/** Creates the parameter `after` of a feed. @param of the entries that have such ids, `an event` */
export function createResumeParameter(pattern: RegExp, of: string): FieldType {
  return withDocumentation(
    textMatching(18, (id) => pattern.test(id), `the id of ${of}`, { pattern: pattern.source }),
    { about: 'Begins with what came after this one. `Last-Event-ID` takes precedence.', example: '69214e6f0000000100' },
  );
}

/** Reads the id to resume at; the header is newer than the address. @throws AppError badParameter (4004) */
export function readResumeId({ headers }: IncomingMessage, { after }: Values, type: FieldType): string | undefined {
  const sent = headers['last-event-id'];
  if (typeof sent !== 'string' || sent === '') return typeof after === 'string' ? after : undefined;
  const faults = createFieldErrors();
  type.query?.(sent, 'Last-Event-ID', faults);
  throwIfAny('badParameter', faults);
  return sent;
}
