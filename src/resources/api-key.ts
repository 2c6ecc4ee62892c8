import { recordedTime, timestamp } from '../schema/fields/number.js';
import { reference } from '../schema/fields/reference.js';
import { choice, text, textMatching } from '../schema/fields/text.js';
import { type FieldType, optional, required } from '../schema/fields.js';
import { scopes } from '../schema/operation.js';
import { defineListed, description, type Resource } from '../schema/resource.js';
import { asset } from './asset.js';
import { device } from './device/index.js';
import { group } from './group.js';
import { project } from './project.js';
import { service } from './service.js';

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

/** The types that a key can be limited to, by the field that names the object. */
const limitTypes = { id_project: project, id_service: service, id_group: group, id_asset: asset, id_device: device };
export type LimitField = keyof typeof limitTypes;

/** The collections that a key can be limited to an object of, by the field that names it; from the top. */
export const limitCollections: ReadonlyMap<LimitField, string> = new Map(
  Object.entries(limitTypes).map(([field, { plural }]) => [field as LimitField, plural]),
);

const limitedTo = (resource: Resource) =>
  reference(resource, `The key is limited to this ${resource.name} and everything below it.`);

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
        '`stream` sends streams only, `device` is for the device that `id_device` names, `read` allows every GET, `write` also all changes, `admin` also keys and storages.',
    }),
    description,
    expires_at: optional(timestamp(), { about: 'Time from which the key is refused, in the future.' }),
    ...Object.fromEntries(Object.entries(limitTypes).map(([field, resource]) => [field, limitedTo(resource)])),
  },
  readOnly: {
    id: required(text(36), { about: 'Identifies the key.', example: apiKeyId }),
    created_at: required(recordedTime(), { filter: true, about: 'Time of creation.' }),
  },
  hidden: { digest: required(text(64)), topics_change_until: optional(timestamp()) },
  parentCollections: Object.fromEntries(limitCollections),
  unique: [['digest']],
  defaultSort: 'created_at',
  events: { insert: 'created', delete: 'deleted', shown: ['username', 'scope'] },
});
