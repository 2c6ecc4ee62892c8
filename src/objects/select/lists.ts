import type { Id } from '../../db/ids.js';
import { device } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { ListedType, Resource } from '../../schema/resource.js';
import { getId, getString } from '../../serialize/bson.js';
import type { OperationContext } from '../context.js';
import type { Page } from '../page.js';
import { assertExists } from '../resources.js';
import { compile } from './compile.js';
import { readPage } from './page.js';
import { isExport, readBatches, readExport } from './read.js';

/**
 * Lists one page, or exports all objects that match.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export async function listResources(
  ctx: OperationContext,
  listed: ListedType,
  request: ListRequest,
  within: Values = {},
): Promise<Page> {
  const selection = await compile(ctx, listed, request, within);
  return isExport(request) ? readExport(ctx, selection, request) : readPage(ctx, selection, request);
}

/**
 * Lists the children of one object, which they name as `{field: id}`.
 * @throws AppError notFound (4041) if the parent does not exist
 */
export async function listChildren(
  ctx: OperationContext,
  listed: ListedType,
  request: ListRequest,
  { parent, field, id }: { parent: Resource; field: string; id: string },
): Promise<Page> {
  // an export is read after this has returned; a limit may leave a child, but not its parent
  if (isExport(request) || ctx.limit !== undefined) await assertExists(ctx, parent, id);
  const page = await listResources(ctx, listed, request, { [field]: id });
  // a parent that has children exists
  if (!isExport(request) && page.total_documents === 0) await assertExists(ctx, parent, id);
  return page;
}

/** Finds the devices that a saved filter selects. @throws AppError badParameter (4004) without the filter */
export async function findFilteredDevices(ctx: OperationContext, filter: string): Promise<{ _id: Id; id: string }[]> {
  const sort = { key: 'device', paths: ['id_developer'], direction: 1 } as const;
  const request = { filter: {}, params: { filter }, sort, max: 0, offset: 0, now: ctx.now };
  const found: { _id: Id; id: string }[] = [];
  for await (const batch of readBatches(ctx, await compile(ctx, device, request), { projection: { id_developer: 1 } }))
    found.push(...batch.map((bson) => ({ _id: getId(bson, '_id'), id: getString(bson, 'id_developer') ?? '' })));
  return found;
}
