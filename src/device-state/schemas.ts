import { integer, recordedTime } from '../schema/fields/number.js';
import { type Schema, withDocumentation } from '../schema/fields.js';

const side = (about: string, example: object): Schema => ({
  type: 'object',
  additionalProperties: true,
  description: about,
  examples: [example],
});
const version = (about: string): Schema => withDocumentation(integer({ min: 0 }), { about, example: 1 }).schema;
const time = (about: string): Schema => withDocumentation(recordedTime(), { about }).schema;

/** The state of a device, as it is shown. */
export const stateSchema: Schema = {
  title: 'DeviceState',
  type: 'object',
  description: 'The state of a device.',
  properties: {
    desired: side('What the device shall be.', { interval: 60 }),
    reported: side('What the device says it is.', { interval: 30 }),
    delta: side('The part of `desired` that the device has neither reported nor rejected.', { interval: 60 }),
    desired_version: version('Number of changes of `desired`.'),
    reported_version: version('Number of reports.'),
    desired_at: time('Time of the last change of `desired`; absent before the first.'),
    reported_at: time('Time of the last report; absent before the first.'),
  },
  required: ['desired', 'reported', 'delta', 'desired_version', 'reported_version'],
  additionalProperties: false,
  examples: [
    {
      desired: { interval: 60 },
      reported: { interval: 30 },
      delta: { interval: 60 },
      desired_version: 1,
      reported_version: 1,
    },
  ],
  xml: { name: 'response' },
};

/** The body of a merge patch. */
export function describePatch(title: string, example: object): Schema {
  return {
    title,
    type: 'object',
    description: 'A merge patch (RFC 7386).',
    additionalProperties: true,
    examples: [example],
  };
}
