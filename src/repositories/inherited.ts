import { read_limit_ms } from '../db/database.js';
import type { ListedType } from '../schema/resource.js';
import { getDocument, getString } from '../serialize/bson.js';
import type { OperationContext } from './context.js';
import type { Bson } from './page.js';

/**
 * Loads the members that `documents` inherit, such as the properties of device models (contract 5): one query, or none.
 * @returns BSON by identifier of the object they come from
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
  const found = store.db
    .collection(plural)
    .find({ account, id_developer: { $in: [...ids] } }, { raw: true, maxTimeMS: read_limit_ms });
  for await (const source of found as AsyncIterable<unknown>) {
    const value = getDocument(source as Bson, member);
    const id = getString(source as Bson, 'id_developer');
    if (id !== undefined && value !== undefined) inherited.set(id, value);
  }
  return inherited;
}
