import type { Database } from '../db/database.js';
import { removeTree } from '../repositories/cascade-delete.js';
import * as documents from '../repositories/resources.js';
import { device, resources } from '../resources/index.js';
import { bodySchema } from '../schema/openapi.js';
import { body_limit_bytes } from '../schema/operation.js';
import type { Resource } from '../schema/resource.js';
import { listParameters, listParser, parseBody, parseUpdate } from '../schema/validation.js';
import { type Endpoint, locationPath, type RequestContext } from './context.js';
import { createResponder, sendSuccess } from './respond.js';

const idOf = (resource: Resource) => `${resource.name}_id_developer`;

/** The five operations of a resource (§4.2–4.6, 4.9) and the listings of its children. */
export function resourceEndpoints(db: Database, resource: Resource, base: string): Endpoint[] {
  const { name, plural, messages } = resource;
  const respond = createResponder(db, resource, { digested: resource === device });
  const parse = listParser(resource);
  const query = listParameters(resource);
  const all = `/${plural}/`;
  const one = `/${plural}/{${idOf(resource)}}/`;
  const shared = { tag: plural } as const;
  const id = (call: RequestContext) => call.path[idOf(resource)] ?? '';
  return [
    {
      ...shared,
      method: 'post',
      path: all,
      often: true,
      summary: `Create a ${name}`,
      scope: 'write',
      body: { schema: bodySchema(resource, false), updating: false, limit_bytes: body_limit_bytes },
      result: { kind: 'status', status: 200, code: 2001, message: messages.created, created: true },
      failures: ['badJson', 'badParameter', 'invalid', 'tooLarge'],
      async handle(call) {
        const created = await documents.createResource(
          db,
          resource,
          call.principal,
          parseBody(resource, call.body),
          call.now,
        );
        call.response.location(locationPath(base, plural, created));
        sendSuccess(call, 2001, messages.created);
      },
    },
    {
      ...shared,
      method: 'get',
      path: all,
      summary: `List ${plural}`,
      scope: 'read',
      query,
      result: { kind: 'list', type: resource },
      failures: ['badParameter'],
      async handle(call) {
        const request = parse(call.query, call.now);
        await respond.list(call, await documents.listResources(db, resource, call.principal.account, request));
      },
    },
    {
      ...shared,
      method: 'get',
      path: one,
      often: true,
      summary: `Show a ${name}`,
      scope: 'read',
      result: { kind: 'object', type: resource },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        await respond.object(call, await documents.showResource(db, plural, call.principal.account, id(call)));
      },
    },
    {
      ...shared,
      method: 'put',
      path: one,
      often: true,
      summary: `Change a ${name}`,
      scope: 'write',
      body: { schema: bodySchema(resource, true), updating: true, limit_bytes: body_limit_bytes },
      result: { kind: 'status', status: 200, code: 2005, message: messages.updated, details: resource },
      failures: ['noBody', 'badParameter', 'invalid', 'notFound', 'conflict', 'tooLarge'],
      async handle(call) {
        const changes = parseUpdate(resource, call.body);
        const accepts = acceptedVersions(changes.version, call.request.headers['if-match']);
        const changed = await documents.updateResource(
          db,
          resource,
          call.principal,
          id(call),
          changes.values,
          accepts,
          call.now,
        );
        await respond.updated(call, changed, messages.updated);
      },
    },
    {
      ...shared,
      method: 'delete',
      path: one,
      summary: `Delete a ${name} and everything beneath it`,
      scope: 'write',
      result: { kind: 'status', status: 200, code: 2004, message: messages.deleted },
      failures: ['badParameter', 'notFound'],
      ...(resource !== device && { malformedIdIs404: true }),
      async handle(call) {
        await removeTree(db, resource, call.principal.account, id(call));
        sendSuccess(call, 2004, messages.deleted);
      },
    },
    ...resources.flatMap((child) => childEndpoints(db, resource, child)),
  ];
}

/** The listings of one type of children, and of one child (§4.2–4.5). */
function childEndpoints(db: Database, upper: Resource, child: Resource): Endpoint[] {
  const field = Object.keys(child.parentCollections).find((key) => child.parentCollections[key] === upper.plural);
  if (field === undefined) return [];
  const respond = createResponder(db, child, { digested: child === device });
  const parse = listParser(child);
  const all = `/${upper.plural}/{${idOf(upper)}}/${child.plural}/`;
  const upperId = (call: RequestContext) => call.path[idOf(upper)] ?? '';
  return [
    {
      method: 'get',
      path: all,
      tag: upper.plural,
      summary: `List the ${child.plural} of a ${upper.name}`,
      scope: 'read',
      query: listParameters(child),
      result: { kind: 'list', type: child },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        const { account } = call.principal;
        const request = parse(call.query, call.now);
        const page = await documents.listResources(db, child, account, request, { [field]: upperId(call) });
        // whoever has children exists
        if (page.total_documents === 0) await documents.mustExist(db, upper, account, upperId(call));
        await respond.list(call, page);
      },
    },
    {
      method: 'get',
      path: `${all}{${idOf(child)}}/`,
      tag: upper.plural,
      summary: `Show a ${child.name} of a ${upper.name}`,
      scope: 'read',
      result: { kind: 'object', type: child },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        const { account } = call.principal;
        const id = call.path[idOf(child)] ?? '';
        await respond.object(
          call,
          await documents.showResource(db, child.plural, account, id, { [field]: upperId(call) }),
        );
      },
    },
  ];
}

/**
 * The versions that an update may change: those of the body and of `If-Match`, which both must match where both are
 * given; `*` matches any, and of a device's tag the part before the dot counts (contract 4).
 */
export function acceptedVersions(
  version: number | undefined,
  header: string | undefined,
): readonly number[] | undefined {
  const given = version === undefined ? undefined : [version];
  const tags = header?.split(',').map((tag) => tag.trim());
  if (tags === undefined || tags.includes('*')) return given;
  const matched = tags
    .map((tag) => /^(?:W\/)?"(\d{1,15})(?:\.[^"]*)?"$/.exec(tag)?.[1])
    .filter((found) => found !== undefined);
  const versions = matched.map(Number);
  return given === undefined ? versions : given.filter((one) => versions.includes(one));
}
