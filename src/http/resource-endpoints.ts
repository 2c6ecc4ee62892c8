import { removeTree } from '../objects/cascade-delete.js';
import { countTree } from '../objects/count-tree.js';
import { listChildren, listResources } from '../objects/lists.js';
import { createResource, showResource, updateResource } from '../objects/resources.js';
import { resources } from '../resources/index.js';
import { choice } from '../schema/fields/text.js';
import { type Schema, type Values, withDocumentation } from '../schema/fields.js';
import { createListQueryParser, listQueryOf } from '../schema/list-query.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { body_limit_bytes, type Scope } from '../schema/operation.js';
import { describeIdentifier, type Resource } from '../schema/resource.js';
import { parseBody, parseQuery, parseUpdate } from '../schema/validation.js';
import { buildLocationPath, type Endpoint, type EndpointDeps, type RequestContext } from './context.js';
import { parseListRequest } from './list-request.js';
import { createResponder, sendStatus, sendSuccess } from './respond.js';

const idParam = (resource: Resource) => `${resource.name}_id_developer`;
const pathParametersOf = (resource: Resource) => ({ [idParam(resource)]: describeIdentifier(resource) });
const idOf = (resource: Resource, { path }: RequestContext) => path[idParam(resource)] ?? '';

/** Operations of one resource beyond its declaration. */
export interface ResourceHooks {
  /** The scope of all operations, if it is one. */
  scope?: Scope;
  /** Creates an object. @returns its identifier, and the details of the answer */
  create?(ctx: RequestContext, values: Values): Promise<{ id: string; details?: object }>;
  /** Schema of the details. */
  createdDetails?: Schema;
  /** Completes the values of an update. */
  prepareUpdate?(ctx: RequestContext, values: Values): Promise<Values>;
}

/** Creates the endpoints of a resource (reference/resources.md#operations), the lists of its children included. */
export function resourceEndpoints(deps: EndpointDeps, resource: Resource, hooks: ResourceHooks = {}): Endpoint[] {
  return [
    createEndpoint(deps, resource, hooks),
    ...readEndpoints(deps, resource, hooks),
    updateEndpoint(deps, resource, hooks),
    deleteEndpoint(resource, hooks),
    ...resources.flatMap((child) => childEndpoints(deps, resource, child)),
  ];
}

function createEndpoint({ base_path }: EndpointDeps, resource: Resource, hooks: ResourceHooks): Endpoint {
  const { name, plural, title, messages, moreExamples } = resource;
  const { scope = 'write', createdDetails: details } = hooks;
  const create: NonNullable<ResourceHooks['create']> =
    hooks.create ?? (async (ctx, values) => ({ id: await createResource(ctx, resource, values) }));
  return {
    operationId: `create${title}`,
    method: 'post',
    path: `/${plural}/`,
    tag: plural,
    summary: `Create a ${name}`,
    scope,
    body: { schema: describeBody(resource, false), moreExamples, updating: false, limit_bytes: body_limit_bytes },
    result: {
      kind: 'status',
      status: 200,
      code: 2001,
      message: messages.created,
      ...(details && { details }),
      created: true,
    },
    failures: ['badJson', 'badParameter', 'invalid', 'tooLarge'],
    async handle(ctx) {
      const created = await create(ctx, parseBody(resource, ctx.body));
      ctx.response.location(buildLocationPath(base_path, plural, created.id));
      sendStatus(ctx.response, 200, 2001, messages.created, created.details);
    },
  };
}

function readEndpoints({ yieldTurn }: EndpointDeps, resource: Resource, { scope = 'read' }: ResourceHooks): Endpoint[] {
  const { name, plural, title } = resource;
  const respond = createResponder(yieldTurn, resource);
  const parse = createListQueryParser(resource);
  return [
    {
      operationId: `list${title}s`,
      method: 'get',
      path: `/${plural}/`,
      tag: plural,
      summary: `List ${plural}`,
      scope,
      query: listQueryOf(resource),
      result: { kind: 'list', type: resource },
      failures: ['badParameter'],
      async handle(ctx) {
        const request = parseListRequest(parse, ctx);
        await respond.list(ctx, await listResources(ctx, resource, request), request.output);
      },
    },
    {
      operationId: `get${title}`,
      method: 'get',
      path: `/${plural}/{${idParam(resource)}}/`,
      pathParameters: pathParametersOf(resource),
      tag: plural,
      summary: `Show a ${name}`,
      scope,
      result: { kind: 'object', type: resource },
      failures: ['badParameter', 'notFound'],
      async handle(ctx) {
        await respond.object(ctx, await showResource(ctx, resource, idOf(resource, ctx)));
      },
    },
  ];
}

function updateEndpoint({ yieldTurn }: EndpointDeps, resource: Resource, hooks: ResourceHooks): Endpoint {
  const { name, plural, title, messages } = resource;
  const { scope = 'write', prepareUpdate } = hooks;
  const respond = createResponder(yieldTurn, resource);
  return {
    operationId: `update${title}`,
    method: 'put',
    path: `/${plural}/{${idParam(resource)}}/`,
    pathParameters: pathParametersOf(resource),
    tag: plural,
    summary: `Change a ${name}`,
    scope,
    body: { schema: describeBody(resource, true), updating: true, limit_bytes: body_limit_bytes },
    result: { kind: 'status', status: 200, code: 2005, message: messages.updated, details: resource },
    failures: ['noBody', 'badParameter', 'invalid', 'notFound', 'conflict', 'tooLarge'],
    async handle(ctx) {
      const { values: given, version } = parseUpdate(resource, ctx.body);
      const acceptedVersions = parseAcceptedVersions(version, ctx.request.headers['if-match']);
      const values = prepareUpdate === undefined ? given : await prepareUpdate(ctx, given);
      const changed = await updateResource(ctx, resource, idOf(resource, ctx), { values, acceptedVersions });
      await respond.updated(ctx, changed, messages.updated);
    },
  };
}

const deleteParameters = new Map([
  ['dry_run', withDocumentation(choice('1'), { about: '1: only counts what would be deleted.', example: '1' })],
]);

function deleteEndpoint(resource: Resource, { scope = 'write' }: ResourceHooks): Endpoint {
  const { name, plural, title, messages } = resource;
  return {
    operationId: `delete${title}`,
    method: 'delete',
    path: `/${plural}/{${idParam(resource)}}/`,
    pathParameters: pathParametersOf(resource),
    tag: plural,
    summary: `Delete a ${name} and everything below it`,
    description:
      'With `dry_run=1` the answer is 2006, and `details` hold the numbers of what would be deleted by type.',
    scope,
    query: deleteParameters,
    result: { kind: 'status', status: 200, code: 2004, message: messages.deleted },
    failures: ['badParameter', 'notFound'],
    malformedIdIs404: resource.malformedIdOnDelete === 'notFound',
    async handle(ctx) {
      const { dry_run } = parseQuery(ctx.query, deleteParameters);
      if (dry_run !== undefined) {
        sendStatus(ctx.response, 200, 2006, 'would change', await countTree(ctx, resource, idOf(resource, ctx)));
        return;
      }
      await removeTree(ctx, resource, idOf(resource, ctx));
      sendSuccess(ctx, 2004, messages.deleted);
    },
  };
}

/** Creates the endpoints for one type of children (reference/resources.md#children). */
function childEndpoints({ yieldTurn }: EndpointDeps, parent: Resource, child: Resource): Endpoint[] {
  const field = Object.keys(child.parentCollections).find((key) => child.parentCollections[key] === parent.plural);
  if (field === undefined) return [];
  const respond = createResponder(yieldTurn, child);
  const parse = createListQueryParser(child);
  const childTypes = { ...pathParametersOf(parent), [idParam(child)]: describeIdentifier(child, field) };
  const collectionPath = `/${parent.plural}/{${idParam(parent)}}/${child.plural}/`;
  return [
    {
      operationId: `list${child.title}sOf${parent.title}`,
      method: 'get',
      path: collectionPath,
      pathParameters: pathParametersOf(parent),
      tag: parent.plural,
      summary: `List the ${child.plural} of a ${parent.name}`,
      scope: 'read',
      query: listQueryOf(child),
      result: { kind: 'list', type: child },
      failures: ['badParameter', 'notFound'],
      async handle(ctx) {
        const request = parseListRequest(parse, ctx);
        const page = await listChildren(ctx, child, request, { parent, field, id: idOf(parent, ctx) });
        await respond.list(ctx, page, request.output);
      },
    },
    {
      operationId: `get${child.title}Of${parent.title}`,
      method: 'get',
      path: `${collectionPath}{${idParam(child)}}/`,
      pathParameters: childTypes,
      tag: parent.plural,
      summary: `Show a ${child.name} of a ${parent.name}`,
      scope: 'read',
      result: { kind: 'object', type: child },
      failures: ['badParameter', 'notFound'],
      async handle(ctx) {
        const document = await showResource(ctx, child, idOf(child, ctx), { [field]: idOf(parent, ctx) });
        await respond.object(ctx, document);
      },
    },
  ];
}

/**
 * Parses the versions that an update accepts, from the body and `If-Match` (reference/requests.md#entity-tags). If both
 * are given, both must match. `*` matches any version; only the part of an entity tag before the dot counts.
 */
export function parseAcceptedVersions(
  version: number | undefined,
  header: string | undefined,
): readonly number[] | undefined {
  const fromBody = version === undefined ? undefined : [version];
  const tags = header?.split(',').map((tag) => tag.trim());
  if (tags === undefined || tags.includes('*')) return fromBody;
  const fromHeader = tags
    .map((tag) => /^(?:W\/)?"(\d{1,15})(?:\.[^"]*)?"$/.exec(tag)?.[1])
    .filter((found) => found !== undefined)
    .map(Number);
  return fromBody === undefined ? fromHeader : fromBody.filter((accepted) => fromHeader.includes(accepted));
}
