import type { MemberWriter, ProjectionContext, StoredMembers } from '../schema/projection.js';
import type { ListedType } from '../schema/resource.js';
import { bsonType } from './bson.js';
import { KeyTable } from './key-table.js';
import { type FieldSelection, writeSelected } from './selection.js';
import type { Writer } from './writer.js';

export interface ProjectionOptions<Context> {
  /** XML element name of one object: `device`. */
  element: string;
  /** Top-level stored keys that are never shown. */
  hidden?: Iterable<string>;
  /** Top-level stored keys that `writeComputed` reads; they are not written by themselves. */
  computed?: Iterable<string>;
  /** The only top-level stored keys to show; absent: all but the others. */
  shown?: Iterable<string>;
  /** Writes computed members at the end of the object. */
  writeComputed?: (stored: StoredMembers, out: MemberWriter, context: Context) => void;
}

/** Shows stored documents of one type. Shared by all requests, as writing a document is synchronous. */
export class Projection<Context = unknown> {
  readonly element: Buffer;
  readonly #keys: KeyTable;
  readonly #writeComputed: ProjectionOptions<Context>['writeComputed'];

  constructor({ element, hidden = [], computed = [], shown, writeComputed }: ProjectionOptions<Context>) {
    this.element = Buffer.from(element);
    this.#keys = new KeyTable(hidden, computed, shown);
    this.#writeComputed = writeComputed;
  }

  /** Writes a document as an object, without the key or element around it. */
  write(bson: Uint8Array, out: Writer, context: Context): void {
    out.openContainer(bsonType.document);
    this.#keys.writeShown(bson, out);
    this.#writeComputed?.(this.#keys, out, context);
    this.#keys.release();
    out.closeContainer(bsonType.document);
  }
}

const internalKeys = [
  '_id',
  '__v',
  'account',
  'parent',
  'last_request_id',
  'last_change',
  'claim',
  'message',
  'is_silent',
  'shared_content',
];

/**
 * Builds the projection of a type; in a `list` it leaves out what is too large for one.
 * @param computed members that replace those of the type
 */
export function projectionOf(
  listed: ListedType,
  place: 'list' | 'object' = 'object',
  computed = listed.computed,
): Projection<ProjectionContext> {
  const { name: element, omittedFromLists } = listed;
  const hidden = new Set([
    ...internalKeys,
    ...Object.keys(listed.hidden),
    ...(place === 'list' ? omittedFromLists : []),
  ]);
  if (computed === undefined) return new Projection({ element, hidden });
  for (const key of computed.from) hidden.delete(key);
  return new Projection({ element, hidden, computed: computed.from, writeComputed: computed.print });
}

/** Builds the projection of a list that shows the selected members only (reference/exports.md#fields). */
export function selectedProjectionOf(
  listed: ListedType,
  selection: FieldSelection,
  computed = listed.computed,
): Projection<ProjectionContext> {
  const { name: element, fields, readOnly, omittedFromLists } = listed;
  const stored = Object.keys({ ...fields, ...readOnly }).filter(
    (key) => computed?.from.has(key) !== true && !omittedFromLists.includes(key),
  );
  const shown = stored.filter((key) => selection.of(key)?.isWhole);
  const partial = stored.filter((key) => selection.of(key)?.isWhole === false);
  return new Projection({
    element,
    shown,
    computed: new Set([...partial, ...(computed?.from ?? [])]),
    writeComputed(members, out, context) {
      const selected = writeSelected(out, selection);
      for (const key of partial) selected.merged(key, undefined, members.raw(key)?.bytes);
      computed?.print(members, selected, context);
      for (const [key, value] of context.requested ?? []) out.merged(key, undefined, value);
    },
  });
}
