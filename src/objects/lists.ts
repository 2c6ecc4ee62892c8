import type { Values } from '../schema/fields.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { ListedType, Resource } from '../schema/resource.js';
import type { OperationContext } from './context.js';
import type { Page } from './page.js';
import { assertExists } from './resources.js';
import { compile } from './select/compile.js';
import { readPage } from './select/page.js';
import { isExport, readExport } from './select/read.js';

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
