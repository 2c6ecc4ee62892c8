import { timestamp } from '../schema/fields/number.js';
import { choice, text, textMatching } from '../schema/fields/text.js';
import { optional, required } from '../schema/fields.js';
import { scopes } from '../schema/operation.js';
import { defineListed, description } from '../schema/resource.js';

const accountName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$/;
const userName = /^[A-Za-z0-9._-]{1,50}$/;

/** Checks the name of an account (reference/access.md#accounts). It is also the name of a folder: never `.` or `..`. */
export function isAccountName(text: string): boolean {
  return accountName.test(text);
}

/** Checks the name of a user (reference/access.md#users). */
export function isUserName(text: string): boolean {
  return userName.test(text);
}

/** An API key of a user; only its digest is stored (reference/access.md#api-keys). */
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
