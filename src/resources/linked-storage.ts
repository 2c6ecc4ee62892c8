import { integer, timestamp } from '../schema/fields/number.js';
import { text } from '../schema/fields/text.js';
import { internal, required } from '../schema/fields.js';
import { defineListed } from '../schema/resource.js';

/** A storage that a user has linked (reference/file-storage.md#linking). Its settings depend on the provider and are encrypted. */
export const filestore = defineListed({
  name: 'filestore',
  plural: 'filestores',
  fields: { provider: required(text(50)), username: required(text(50)) },
  hidden: {
    sealed: required(internal('binary')),
    key_id: required(text(16)),
    link: required(text(36)),
    owner: required(text(50)),
    updater: required(text(50)),
    created_at: required(timestamp()),
    updated_at: required(timestamp()),
  },
  unique: [['account', 'provider', 'username']],
  defaultSort: 'username',
  events: {
    ...{ subject: 'storage', insert: 'linked', update: 'updated', delete: 'unlinked' },
    shown: ['provider', 'username'],
  },
});

/** A file in the listing of a linked storage (reference/file-storage.md#listing). */
export const file = defineListed({
  name: 'file',
  plural: 'files',
  title: 'StorageFile',
  fields: {
    name: required(text(1000), { about: 'Last part of the path.', example: 'march.csv' }),
    path: required(text(4000), { about: 'Path from the linked folder on.', example: '2026/march.csv' }),
    size: required(integer({ min: 0 }), { about: 'Bytes.', example: 5120, unit: 'bytes' }),
    modified_at: required(timestamp(), { about: 'Time of the last change.' }),
    url: required(text(8000), {
      about: 'Link that opens the file for an hour without a key; treat it as a secret.',
      example: 'https://devices.example/external/files/qJ6R/march.csv',
    }),
  },
  defaultSort: 'path',
});
