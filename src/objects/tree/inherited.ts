import { read_limit_ms } from '../../db/database.js';
import { findRaw } from '../../db/raw-find.js';
import type { ListedType } from '../../schema/resource.js';
import { getDocument, getString } from '../../serialize/bson.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';

/** Inherited members as BSON, by identifier of the object that they are inherited from. */
export type Inherited = ReadonlyMap<string, Bson>;

/** Bytes that a list holds beside its page without a share of the memory: nearly all lists need less. */
const unshared_bytes = 256 * 1024;
/** Bytes of the objects that one piece of a list inherits from, unless it is one document. */
const max_piece_bytes = 8 * 1024 * 1024;

/** Loads what one object inherits (reference/devices.md#model-properties). */
export async function loadInherited(ctx: OperationContext, listed: ListedType, document: Bson): Promise<Inherited> {
  return (await readSources(ctx, listed, [document])).inherited;
}

/**
 * Loads what a batch inherits, with at most one query as a rule; in pieces if that is large. What a piece inherits has a share
 * of the memory until the next one is asked for.
 */
export async function* loadInheritedInPieces(
  ctx: OperationContext,
  listed: ListedType,
  documents: readonly Bson[],
): AsyncGenerator<{ documents: readonly Bson[]; inherited: Inherited }> {
  const max_bytes = documents.length > 1 ? max_piece_bytes : Number.POSITIVE_INFINITY;
  const { inherited, bytes } = await readSources(ctx, listed, documents, max_bytes);
  if (bytes > max_bytes) {
    inherited.clear();
    const middle = Math.floor(documents.length / 2);
    yield* loadInheritedInPieces(ctx, listed, documents.slice(0, middle));
    yield* loadInheritedInPieces(ctx, listed, documents.slice(middle));
    return;
  }
  const { store, account, caller } = ctx;
  const options = { amount: bytes, caller, signal: caller?.left };
  const release = bytes > unshared_bytes ? await store.inherited.acquire(account, options) : undefined;
  try {
    yield { documents, inherited };
  } finally {
    release?.();
  }
}

/** Reads the members that documents inherit, and no further than `max_bytes`. */
async function readSources(
  { store, account }: OperationContext,
  { inherits }: ListedType,
  documents: readonly Bson[],
  max_bytes = Number.POSITIVE_INFINITY,
): Promise<{ inherited: Map<string, Bson>; bytes: number }> {
  const inherited = new Map<string, Bson>();
  let bytes = 0;
  if (inherits === undefined) return { inherited, bytes };
  const { field, plural, member } = inherits;
  const ids = new Set(documents.map((document) => getString(document, field)).filter((id) => id !== undefined));
  if (ids.size === 0) return { inherited, bytes };
  const query = { filter: { account, id_developer: { $in: [...ids] } }, maxTimeMS: read_limit_ms };
  for await (const sources of findRaw(store.db.collection(plural), query).batches) {
    for (const source of sources) {
      const value = getDocument(source, member);
      const id = getString(source, 'id_developer');
      bytes += source.length;
      if (id !== undefined && value !== undefined) inherited.set(id, value);
    }
    if (bytes > max_bytes) break;
  }
  return { inherited, bytes };
}
