import { recordedTime, timestamp } from '../schema/fields/number.js';
import { choice, text, textMatching } from '../schema/fields/text.js';
import { type FieldType, optional, required } from '../schema/fields.js';
import { scopes } from '../schema/operation.js';
import { defineListed, description } from '../schema/resource.js';

const accountName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$/;
const userNamePattern = /^[A-Za-z0-9._-]{1,50}$/;

/** Checks the name of an account (reference/access.md#accounts). It is also the name of a folder: never `.` or `..`. */
export function isAccountName(text: string): boolean {
  return accountName.test(text);
}

/** Checks the name of a user (reference/access.md#users). */
export function isUserName(text: string): boolean {
  return userNamePattern.test(text);
}

/** The name of a user, as a field. */
export function userName(): FieldType {
  return textMatching(50, isUserName, 'letters, digits, dots, dashes and underscores', {
    pattern: userNamePattern.source,
  });
}

/** An id, as examples show it. */
export const apiKeyId = '01a201a7-a8d1-798a-9484-a211201349cf';

/** An API key of a user; only its digest is stored (reference/access.md#api-keys). */
export const apikey = defineListed({
  name: 'apikey',
  plural: 'apikeys',
  title: 'ApiKey',
  example: { username: 'alice', scope: 'write', description: 'Key of the stock control', expires_at: 4102444800 },
  fields: {
    username: required(userName(), { filter: true, about: 'User of the key, and owner of what is created with it.' }),
    scope: required(choice(...scopes), {
      filter: true,
      about:
        '`stream` sends streams only, `read` allows every GET, `write` also all changes, `admin` also keys and storages.',
    }),
    description,
    expires_at: optional(timestamp(), { about: 'Time from which the key is refused, in the future.' }),
  },
  readOnly: {
    id: required(text(36), { about: 'Identifies the key.', example: apiKeyId }),
    created_at: required(recordedTime(), { filter: true, about: 'Time of creation.' }),
  },
  hidden: { digest: required(text(64)) },
  unique: [['digest']],
  defaultSort: 'created_at',
  events: { insert: 'created', delete: 'deleted', shown: ['username', 'scope'] },
});
