import { protectedBy } from '../db/indexes.js';
import { isPlaced } from '../db/reach.js';
import type { Bson } from '../objects/page.js';
import { showResource } from '../objects/resources.js';
import { listChildren } from '../objects/select/lists.js';
import { removeTree } from '../objects/tree/cascade-delete.js';
import { countTree } from '../objects/tree/count-tree.js';
import { createResource } from '../objects/write/create.js';
import { updateResource } from '../objects/write/update.js';
import { resources } from '../resources/index.js';
import { parseBody, parseUpdate, withSentNames } from '../schema/body.js';
import { choice } from '../schema/fields/text.js';
import { type Schema, type Values, withDocumentation } from '../schema/fields.js';
import { objectQueryOf, parseObjectQuery } from '../schema/list-parameters.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { type Scope, wouldChange } from '../schema/operation.js';
import { parseQuery } from '../schema/query.js';
import { describeIdentifier, type ListedType, type Resource } from '../schema/resource.js';
import type { Endpoint, RequestContext } from './context.js';
import { parseIfMatch } from './entity-tags.js';
import { createListing } from './list-request.js';
import { setAnswerAtLimit } from './respond.js';

const idParam = (resource: Resource) => `${resource.name}_id_developer`;
const pathParametersOf = (resource: Resource) => ({ [idParam(resource)]: describeIdentifier(resource) });
const idOf = (resource: Resource, { path }: RequestContext) => path[idParam(resource)] ?? '';

/** The path of one object, with its tag. */
const atObject = (resource: Resource) => ({
  path: `/${resource.plural}/{${idParam(resource)}}/`,
  pathParameters: pathParametersOf(resource),
  tag: resource.plural,
});

/** A type outside the hierarchy belongs to the account as a whole. */
const refusesLimited = { limitedKeys: 'refused' } as const;

/** Operations of one resource beyond its declaration. */
export interface ResourceHooks {
  /** The scope of all operations, if it is one. */
  scope?: Scope;
  /** Creates an object. @returns its identifier, and the details of the answer */
  create?(ctx: RequestContext, values: Values): Promise<{ id: string; details?: object }>;
  createdDetails?: Schema;
  /** Finds an object. @throws AppError notFound (4041) */
  show?(ctx: RequestContext, id: string): Promise<Bson>;
  /** Changes an object by `write`. @returns the object after it */
  update?(ctx: RequestContext, values: Values, write: (values: Values) => Promise<Bson>): Promise<Bson>;
  /** The details of an update, if they have more than the object. */
  updated?: ListedType;
}

/** Creates the endpoints of a resource (reference/resources.md#operations), the lists of its children included. */
export function resourceEndpoints(resource: Resource, hooks: ResourceHooks = {}): Endpoint[] {
  return [
    createEndpoint(resource, hooks),
    ...readEndpoints(resource, hooks),
    updateEndpoint(resource, hooks),
    deleteEndpoint(resource, hooks),
    ...resources.flatMap((child) => childEndpoints(resource, child)),
  ];
}

function createEndpoint(resource: Resource, hooks: ResourceHooks): Endpoint {
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
    ...(resource.parents.length === 0 && refusesLimited),
    body: { schema: describeBody(resource, false), moreExamples, updating: false },
    result: {
      kind: 'status',
      success: 'created',
      message: messages.created,
      ...(details && { details }),
      hasLocation: true,
    },
    handle: (ctx) =>
      withSentNames(resource, ctx.body, async () => {
        const { id, ...created } = await create(ctx, parseBody(resource, ctx.body));
        return { ...created, location: [plural, id] };
      }),
  };
}

function readEndpoints(resource: Resource, hooks: ResourceHooks): Endpoint[] {
  const { scope = 'read', show = (ctx, id) => showResource(ctx, resource, id) } = hooks;
  const { name, plural, title, isForDevices } = resource;
  const access = isPlaced(plural) || resource.forLimited !== undefined ? {} : refusesLimited;
  return [
    {
      operationId: `list${title}s`,
      path: `/${plural}/`,
      tag: plural,
      summary: `List ${plural}`,
      scope,
      ...access,
      ...createListing(resource),
    },
    {
      ...atObject(resource),
      operationId: `get${title}`,
      method: 'get',
      summary: `Show a ${name}`,
      scope,
      ...access,
      ...(isForDevices && { isForDevices }),
      ...createShowing(resource, (ctx) => show(ctx, idOf(resource, ctx))),
    },
  ];
}

/** The part of an operation that makes it show one object. */
function createShowing(
  resource: Resource,
  show: (ctx: RequestContext) => Promise<Bson>,
): Pick<Endpoint, 'query' | 'result' | 'handle'> {
  const query = objectQueryOf(resource);
  return {
    ...(query && { query }),
    result: { kind: 'object', type: resource },
    async handle(ctx) {
      const output = query && parseObjectQuery(resource, query, ctx.query);
      return { document: await show(ctx), output };
    },
  };
}

function updateEndpoint(resource: Resource, hooks: ResourceHooks): Endpoint {
  const { name, plural, title, messages } = resource;
  const { scope = 'write', update = (_ctx, values, write) => write(values), updated = resource } = hooks;
  return {
    ...atObject(resource),
    operationId: `update${title}`,
    method: 'put',
    summary: `Change a ${name}`,
    scope,
    ...(!isPlaced(plural) && refusesLimited),
    body: { schema: describeBody(resource, true), updating: true },
    result: { kind: 'status', success: 'updated', message: messages.updated, details: updated },
    handle: (ctx) =>
      withSentNames(resource, ctx.body, async () => {
        const acceptVersions = parseIfMatch(ctx.request.headers['if-match']);
        const { values, version } = parseUpdate(resource, ctx.body);
        const acceptedVersions = acceptVersions(version);
        const write = (complete: Values) =>
          updateResource(ctx, resource, idOf(resource, ctx), { values: complete, acceptedVersions });
        return { document: await update(ctx, values, write) };
      }),
  };
}

const deleteParameters = new Map([
  ['dry_run', withDocumentation(choice('1'), { about: '1: only counts what would be deleted.', example: '1' })],
]);

function deleteEndpoint(resource: Resource, { scope = 'write' }: ResourceHooks): Endpoint {
  const { name, plural, title, messages } = resource;
  return {
    ...atObject(resource),
    operationId: `delete${title}`,
    method: 'delete',
    summary: `Delete a ${name} and everything below it`,
    description:
      'With `dry_run=1` the answer is 2006, and `details` hold the numbers of what would be deleted by type.',
    scope,
    ...(!isPlaced(plural) && refusesLimited),
    isCostly: true,
    query: deleteParameters,
    result: { kind: 'status', success: 'deleted', message: messages.deleted },
    ...(protectedBy.has(plural) && { failures: ['badParameter', 'invalid', 'notFound'] as const }),
    legacy: { isMalformedIdNotFound: resource.legacy.isMalformedIdBadParameter !== true },
    async handle(ctx) {
      const { dry_run } = parseQuery(ctx.query, deleteParameters);
      const id = idOf(resource, ctx);
      if (dry_run !== undefined) return { result: wouldChange, details: await countTree(ctx, resource, id) };
      await removeTree(ctx, resource, id, () =>
        setAnswerAtLimit(ctx, { success: 'deleted', message: messages.deleted }),
      );
      return;
    },
  };
}

/** Creates the endpoints for one type of children (reference/resources.md#children). */
function childEndpoints(parent: Resource, child: Resource): Endpoint[] {
  const field = Object.keys(child.parentCollections).find((key) => child.parentCollections[key] === parent.plural);
  if (field === undefined) return [];
  const childTypes = { ...pathParametersOf(parent), [idParam(child)]: describeIdentifier(child, field) };
  const collectionPath = `/${parent.plural}/{${idParam(parent)}}/${child.plural}/`;
  return [
    {
      operationId: `list${child.title}sOf${parent.title}`,
      path: collectionPath,
      pathParameters: pathParametersOf(parent),
      tag: parent.plural,
      summary: `List the ${child.plural} of a ${parent.name}`,
      scope: 'read',
      ...createListing(child, (ctx, request) =>
        listChildren(ctx, child, request, { parent, field, id: idOf(parent, ctx) }),
      ),
    },
    {
      operationId: `get${child.title}Of${parent.title}`,
      method: 'get',
      path: `${collectionPath}{${idParam(child)}}/`,
      pathParameters: childTypes,
      tag: parent.plural,
      summary: `Show a ${child.name} of a ${parent.name}`,
      scope: 'read',
      ...createShowing(child, (ctx) => showResource(ctx, child, idOf(child, ctx), { [field]: idOf(parent, ctx) })),
    },
  ];
}
