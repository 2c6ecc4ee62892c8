import { max_identifier_length, text } from '../../schema/fields/text.js';
import { withDocumentation } from '../../schema/fields.js';
import type { Filter } from '../../schema/filters.js';

/** The devices that a saved filter selects (reference/filters.md#use). */
export const bySavedFilter: Filter = {
  params: {
    filter: withDocumentation(text(max_identifier_length), {
      about: 'Only devices that this saved filter selects.',
      example: 'Silent pumps@demo',
      references: 'filters',
    }),
  },
  index: { paths: [] },
  conditions: () => ({}),
};
