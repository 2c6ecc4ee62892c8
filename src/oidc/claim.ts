import { createFieldErrors } from '../errors.js';
import { checkLimit, type NewKey } from '../objects/api-keys.js';
import { isAccountName, limitCollections } from '../resources/api-key.js';
import { apikey } from '../resources/index.js';
import { isPlainObject, parseMembers } from '../schema/fields/object.js';
import { textMatching } from '../schema/fields/text.js';
import { type Fields, required } from '../schema/fields.js';

/** The user that the claim of a token describes (reference/access.md#sign-in-with-openid-connect). */
export type Claim = Omit<NewKey, 'description' | 'expires_at'>;

const shared = ['username', 'scope', ...limitCollections.keys()];
const fields: Fields = {
  account: required(textMatching(60, isAccountName, 'the name of an account')),
  ...Object.fromEntries(Object.entries(apikey.fields).filter(([name]) => shared.includes(name))),
};

/** Parses an object, or an array of one. Members that are not declared make it malformed: one may be a misspelt limit. */
export function parseClaim(value: unknown): Claim | undefined {
  const claim: unknown = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (!isPlainObject(claim)) return undefined;
  const faults = createFieldErrors();
  const parsed = parseMembers(fields, claim, '', faults);
  checkLimit(parsed, faults);
  return Object.keys(faults).length === 0 ? (parsed as unknown as Claim) : undefined;
}
