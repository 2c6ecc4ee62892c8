import { checkLimit, issueKey, type Keyring, type NewKey, revokeKey } from '../objects/api-keys.js';
import { apiKeyId, limitCollections } from '../resources/api-key.js';
import { apikey } from '../resources/index.js';
import { parseFields } from '../schema/body.js';
import { text } from '../schema/fields/text.js';
import { type Values, withDocumentation } from '../schema/fields.js';
import { describeBody, describeClosed } from '../schema/openapi/bodies.js';
import type { Endpoint, EndpointDeps } from './context.js';
import { createListing } from './list-request.js';

const key = 'xRyrgORs5Y0xlGQMzpEP5yyMdtif6hBIq0rUfMsrp0A';

const issuedKey = describeClosed(
  'IssuedKey',
  'A new key.',
  {
    id: { type: 'string', description: 'Identifies the key.', examples: [apiKeyId] },
    key: { type: 'string', description: 'The key, shown only now.', examples: [key] },
  },
  { examples: [{ id: apiKeyId, key }] },
);

/** Creates the endpoints for the API keys of the caller's account (reference/access.md#api-keys). */
export function apiKeyEndpoints({ store }: EndpointDeps, keyring: Keyring): Endpoint[] {
  const shared = { tag: 'apikeys', scope: 'admin' } as const;
  return [
    {
      ...shared,
      operationId: 'createApiKey',
      method: 'post',
      path: '/apikeys/',
      summary: 'Issue an API key; the answer is the only time it is shown',
      body: { schema: describeBody(apikey, false), updating: false },
      result: {
        kind: 'status',
        success: 'created',
        message: 'apikey created',
        details: issuedKey,
        hasLocation: true,
      },
      async handle(ctx) {
        const { account, body, now } = ctx;
        const issued = await issueKey(store.db, { ...parseKey(body, now), account }, now, ctx);
        return { details: issued, location: ['apikeys', issued.id] };
      },
    },
    {
      ...shared,
      operationId: 'listApiKeys',
      path: '/apikeys/',
      summary: 'List the API keys that are not revoked',
      ...createListing(apikey),
    },
    {
      ...shared,
      operationId: 'deleteApiKey',
      method: 'delete',
      path: '/apikeys/{id}/',
      pathParameters: { id: withDocumentation(text(36), { about: 'The `id` of the key.', example: apiKeyId }) },
      summary: 'Revoke an API key',
      result: { kind: 'status', success: 'deleted', message: 'apikey deleted' },
      async handle(ctx) {
        const id = ctx.path.id ?? '';
        await revokeKey(ctx, id);
        await keyring.invalidate(id);
      },
    },
  ];
}

/** Checks the body of a new key; `now` in epoch seconds. @throws AppError invalid (4003) */
function parseKey(body: Values, now: number): Omit<NewKey, 'account'> {
  const values = parseFields(apikey, body, (fields, faults) => {
    const { expires_at } = fields;
    checkLimit(fields, faults);
    if (typeof expires_at === 'number' && expires_at <= now) faults.expires_at ??= 'must not be in the past';
  });
  return values as unknown as Omit<NewKey, 'account'>;
}

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
