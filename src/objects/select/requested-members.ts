import type { RequestedOutput } from '../../schema/list-parameters.js';
import type { ListedType } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';
import { hooksOf } from '../type-hooks.js';

/** Loads the members that `fields` asks for beside what is stored. @returns those of an object as BSON, by key; undefined if none */
export async function loadRequested(
  ctx: OperationContext,
  listed: ListedType,
  documents: readonly Bson[],
  { requested = new Map(), format }: Pick<RequestedOutput, 'requested' | 'format'>,
): Promise<((document: Bson) => ReadonlyMap<string, Bson>) | undefined> {
  if (requested.size === 0) return undefined;
  const values = await Promise.all(
    [...requested].map(async ([key, request]) => {
      const isFlat = format === 'csv';
      const member = hooksOf(listed).requested?.[key];
      const load = async () => member?.load(ctx, documents, { ...request, isFlat });
      const loaded = await (documents.length === 1
        ? load()
        : ctx.store.costly.run(ctx.account, load, { caller: ctx.caller, signal: ctx.caller?.left }));
      return [key, loaded ?? new Map<Bson, Bson>()] as const;
    }),
  );
  return (document) =>
    new Map(
      values.flatMap(([key, byDocument]) => {
        const value = byDocument.get(document);
        return value === undefined ? [] : [[key, value] as const];
      }),
    );
}

/** Names the columns of an export that show requested members. @returns undefined if they are called as `fields` names them */
export async function loadHeadings(
  ctx: OperationContext,
  listed: ListedType,
  { requested = new Map(), format, columns }: RequestedOutput,
): Promise<readonly string[] | undefined> {
  if (format !== 'csv' || requested.size === 0) return undefined;
  const names = new Map<string, string>();
  for (const [key, { paths }] of requested) {
    const headings = await hooksOf(listed).requested?.[key]?.nameColumns?.(ctx, paths);
    for (const [text, heading] of headings ?? []) names.set(`${key}.${text}`, heading);
  }
  const headings = columns.map((column) => names.get(column) ?? column);
  // equal columns would hide each other
  return headings.map((heading, index) => {
    const isUnique = headings.filter((other) => other === heading).length === 1;
    return isUnique ? heading : (columns[index] ?? '');
  });
}
