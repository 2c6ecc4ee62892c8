import { read_limit_ms } from '../db/database.js';
import { findRaw } from '../db/raw-find.js';
import type { ListedType } from '../schema/resource.js';
import { getDocument, getString } from '../serialize/bson.js';
import type { OperationContext } from './context.js';
import type { Bson } from './page.js';

/**
 * Loads the members that `documents` inherit (reference/devices.md#model-properties), with at most one query.
 * @returns BSON by identifier of the object that it is inherited from
 */
export async function loadInherited(
  { store, account }: OperationContext,
  { inherits }: ListedType,
  documents: readonly Bson[],
): Promise<ReadonlyMap<string, Bson>> {
  const inherited = new Map<string, Bson>();
  if (inherits === undefined) return inherited;
  const { field, plural, member } = inherits;
  const ids = new Set(documents.map((document) => getString(document, field)).filter((id) => id !== undefined));
  if (ids.size === 0) return inherited;
  const query = { filter: { account, id_developer: { $in: [...ids] } }, maxTimeMS: read_limit_ms };
  for await (const sources of findRaw(store.db.collection(plural), query).batches)
    for (const source of sources) {
      const value = getDocument(source, member);
      const id = getString(source, 'id_developer');
      if (id !== undefined && value !== undefined) inherited.set(id, value);
    }
  return inherited;
}
