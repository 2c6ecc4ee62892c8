import { removeTree } from '../repositories/cascade-delete.js';
import { listChildren, listResources } from '../repositories/lists.js';
import { createResource, showResource, updateResource } from '../repositories/resources.js';
import { resources } from '../resources/index.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { body_limit_bytes } from '../schema/operation.js';
import { describeIdentifier, type Resource } from '../schema/resource.js';
import { createListParser, listParametersOf, parseBody, parseUpdate } from '../schema/validation.js';
import { buildLocationPath, type Endpoint, type EndpointDeps, type RequestContext } from './context.js';
import { createResponder, sendSuccess } from './respond.js';

const idParam = (resource: Resource) => `${resource.name}_id_developer`;
const pathParametersOf = (resource: Resource) => ({ [idParam(resource)]: describeIdentifier(resource) });
const idOf = (resource: Resource, { path }: RequestContext) => path[idParam(resource)] ?? '';

/** Creates the endpoints of a resource (reference/resources.md#operations), the lists of its children included. */
export function resourceEndpoints(deps: EndpointDeps, resource: Resource): Endpoint[] {
  return [
    createEndpoint(deps, resource),
    ...readEndpoints(deps, resource),
    updateEndpoint(deps, resource),
    deleteEndpoint(resource),
    ...resources.flatMap((child) => childEndpoints(deps, resource, child)),
  ];
}

function createEndpoint({ base_path }: EndpointDeps, resource: Resource): Endpoint {
  const { name, plural, title, messages, moreExamples } = resource;
  return {
    operationId: `create${title}`,
    method: 'post',
    path: `/${plural}/`,
    tag: plural,
    summary: `Create a ${name}`,
    scope: 'write',
    body: { schema: describeBody(resource, false), moreExamples, updating: false, limit_bytes: body_limit_bytes },
    result: { kind: 'status', status: 200, code: 2001, message: messages.created, created: true },
    failures: ['badJson', 'badParameter', 'invalid', 'tooLarge'],
    async handle(ctx) {
      const id = await createResource(ctx, resource, parseBody(resource, ctx.body));
      ctx.response.location(buildLocationPath(base_path, plural, id));
      sendSuccess(ctx, 2001, messages.created);
    },
  };
}

function readEndpoints({ yieldTurn }: EndpointDeps, resource: Resource): Endpoint[] {
  const { name, plural, title } = resource;
  const respond = createResponder(yieldTurn, resource);
  const parse = createListParser(resource);
  return [
    {
      operationId: `list${title}s`,
      method: 'get',
      path: `/${plural}/`,
      tag: plural,
      summary: `List ${plural}`,
      scope: 'read',
      query: listParametersOf(resource),
      result: { kind: 'list', type: resource },
      failures: ['badParameter'],
      async handle(ctx) {
        await respond.list(ctx, await listResources(ctx, resource, parse(ctx.query, ctx.now)));
      },
    },
    {
      operationId: `get${title}`,
      method: 'get',
      path: `/${plural}/{${idParam(resource)}}/`,
      pathParameters: pathParametersOf(resource),
      tag: plural,
      summary: `Show a ${name}`,
      scope: 'read',
      result: { kind: 'object', type: resource },
      failures: ['badParameter', 'notFound'],
      async handle(ctx) {
        await respond.object(ctx, await showResource(ctx, resource, idOf(resource, ctx)));
      },
    },
  ];
}

function updateEndpoint({ yieldTurn }: EndpointDeps, resource: Resource): Endpoint {
  const { name, plural, title, messages } = resource;
  const respond = createResponder(yieldTurn, resource);
  return {
    operationId: `update${title}`,
    method: 'put',
    path: `/${plural}/{${idParam(resource)}}/`,
    pathParameters: pathParametersOf(resource),
    tag: plural,
    summary: `Change a ${name}`,
    scope: 'write',
    body: { schema: describeBody(resource, true), updating: true, limit_bytes: body_limit_bytes },
    result: { kind: 'status', status: 200, code: 2005, message: messages.updated, details: resource },
    failures: ['noBody', 'badParameter', 'invalid', 'notFound', 'conflict', 'tooLarge'],
    async handle(ctx) {
      const { values, version } = parseUpdate(resource, ctx.body);
      const acceptedVersions = parseAcceptedVersions(version, ctx.request.headers['if-match']);
      const changed = await updateResource(ctx, resource, idOf(resource, ctx), { values, acceptedVersions });
      await respond.updated(ctx, changed, messages.updated);
    },
  };
}

function deleteEndpoint(resource: Resource): Endpoint {
  const { name, plural, title, messages } = resource;
  return {
    operationId: `delete${title}`,
    method: 'delete',
    path: `/${plural}/{${idParam(resource)}}/`,
    pathParameters: pathParametersOf(resource),
    tag: plural,
    summary: `Delete a ${name} and everything below it`,
    scope: 'write',
    result: { kind: 'status', status: 200, code: 2004, message: messages.deleted },
    failures: ['badParameter', 'notFound'],
    malformedIdIs404: resource.malformedIdOnDelete === 'notFound',
    async handle(ctx) {
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
  const parse = createListParser(child);
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
      query: listParametersOf(child),
      result: { kind: 'list', type: child },
      failures: ['badParameter', 'notFound'],
      async handle(ctx) {
        const request = parse(ctx.query, ctx.now);
        await respond.list(ctx, await listChildren(ctx, child, request, { parent, field, id: idOf(parent, ctx) }));
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
