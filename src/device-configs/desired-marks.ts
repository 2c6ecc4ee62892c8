import { findDesiredConfigs } from '../device-state/changes.js';
import { findState } from '../device-state/store.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson, Page } from '../objects/page.js';
import { device } from '../resources/index.js';
import { getString } from '../serialize/bson.js';

/** The BSON element `desired: true`, and the end of a document. */
const mark = Buffer.from('\x08desired\0\x01\0', 'latin1');

/** Adds `desired: true` to the versions of files that a device shall have (reference/device-configs.md#listing). */
export async function appendDesiredMarks(ctx: OperationContext, page: Page, id: string): Promise<Page> {
  const { store } = ctx;
  const node = await store.loader(device.plural).locate(ctx, id);
  const { desired } = node === undefined ? {} : await findState(store.db, node._id);
  const versions = findDesiredConfigs(desired ?? {});
  if (versions.size === 0) return page;
  const isDesired = (bson: Bson) => versions.get(getString(bson, 'name') ?? '') === getString(bson, 'version');
  async function* markBatches(): AsyncGenerator<readonly Bson[]> {
    for await (const batch of page.batches) yield batch.map((bson) => (isDesired(bson) ? appendMark(bson) : bson));
  }
  return { ...page, batches: markBatches() };
}

function appendMark(bson: Bson): Bson {
  const marked = Buffer.concat([bson.subarray(0, -1), mark]);
  marked.writeInt32LE(marked.length);
  return marked;
}
