import { choice, optional, required, text, textMatching, timestamp } from '../schema/fields.js';
import { scopes } from '../schema/operation.js';
import { defineListed, description } from '../schema/resource.js';

const accountName = /^[a-z0-9][a-z0-9-]{0,29}$/;
const userName = /^[A-Za-z0-9._-]{1,50}$/;

/** True for 1 to 30 lower-case letters, digits and hyphens, not starting with a hyphen. */
export function isAccountName(given: string): boolean {
  return accountName.test(given);
}

/** True for 1 to 50 letters, digits, dots, underscores and hyphens. */
export function isUserName(given: string): boolean {
  return userName.test(given);
}

/** An API key of a user (contract 2); only its digest is stored. */
export const apikey = defineListed({
  name: 'apikey',
  plural: 'apikeys',
  fields: {
    username: required(
      textMatching(50, isUserName, 'letters, digits, dots, dashes and underscores', {
        pattern: userName.source,
        examples: ['alice'],
      }),
      { filter: true },
    ),
    scope: required(choice(...scopes), { filter: true }),
    description,
    expires_at: optional(timestamp()),
  },
  readOnly: {
    id: required(text(36)),
    created_at: required(timestamp(), { filter: true }),
  },
  hidden: { digest: required(text(64)) },
  unique: [['digest']],
  defaultSort: 'created_at',
});
