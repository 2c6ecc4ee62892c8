import { apiKeyId, limitCollections } from '../resources/api-key.js';
import { apikey } from '../resources/index.js';
import { describeClosed } from '../schema/openapi/bodies.js';
import type { Endpoint } from './context.js';

const { fields, readOnly, example } = apikey;

const self = describeClosed(
  'Self',
  'The key of the request.',
  {
    account: { type: 'string', description: 'Account of the key.', examples: ['demo'] },
    username: fields.username?.type.schema,
    scope: fields.scope?.type.schema,
    ...Object.fromEntries([...limitCollections.keys()].map((field) => [field, fields[field]?.type.schema])),
    expires_at: fields.expires_at?.type.schema,
    id: readOnly.id?.type.schema,
  },
  {
    required: ['account', 'username', 'scope'],
    examples: [{ account: 'demo', username: example.username, scope: example.scope, id: apiKeyId }],
    xml: { name: 'response' },
  },
);

/** Creates the endpoint that shows the key of the request (reference/access.md#api-keys). */
export function selfEndpoints(): Endpoint[] {
  return [
    {
      operationId: 'getSelf',
      method: 'get',
      path: '/self/',
      tag: 'apikeys',
      summary: 'Show the account, user, scope and limit of the key that asks',
      scope: 'any',
      result: { kind: 'plain', schema: self },
      handle: ({ principal: { account, user, scope, limit, expires_at, key_id } }) => ({
        details: {
          account,
          username: user,
          scope,
          ...(limit && { [limit.field]: limit.id_developer }),
          expires_at,
          id: key_id,
        },
      }),
    },
  ];
}
