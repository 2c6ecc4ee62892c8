/** One step of a path: the key of an object and, if it is written as one, the index of an array. */
export interface PathStep {
  key: string;
  index?: number;
}

/** A path into the `data` of streams (reference/series.md#paths). */
export interface DataPath {
  /** The path as it was written. */
  text: string;
  steps: readonly PathStep[];
}

/** Members of an entry, which no path of keys may be called. */
const reservedPaths: ReadonlySet<string> = new Set(['at', 'count']);
const indexToken = /^(?:0|[1-9][0-9]{0,8})$/;
const malformedEscape = /~(?![01])/;

/** Parses keys joined by `.`, or a JSON Pointer (RFC 6901). @returns undefined if it is neither */
export function parseDataPath(text: string): DataPath | undefined {
  if (!text.startsWith('/')) {
    if (text === '' || reservedPaths.has(text)) return undefined;
    return { text, steps: text.split('.').map((key) => ({ key })) };
  }
  if (malformedEscape.test(text)) return undefined;
  const steps = text
    .slice(1)
    .split('/')
    .map((token) => {
      const key = token.replaceAll('~1', '/').replaceAll('~0', '~');
      return indexToken.test(token) ? { key, index: Number(token) } : { key };
    });
  return { text, steps };
}

/** Levels that stored objects have at most (reference/identifiers.md#free-form-objects). */
const max_levels = 16;

/** Reports whether a path leads nowhere, as nothing is nested so deep: the database does not take paths of any length. */
export function isTooDeep({ steps }: DataPath): boolean {
  return steps.length > max_levels;
}

/** Writes a path as a JSON Pointer, in which all spellings of one path are equal. */
export function formatPointer({ steps }: Pick<DataPath, 'steps'>): string {
  return steps.map(({ key }) => `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}

/** The texts by which a path may be stored: its JSON Pointer, and keys joined by dots unless that is another path. */
export function spellingsOf(path: Pick<DataPath, 'steps'>): string[] {
  const pointer = formatPointer(path);
  const dotted = path.steps.map(({ key }) => key).join('.');
  const isSame = !dotted.startsWith('/') && path.steps.every(({ key }) => !key.includes('.'));
  return isSame ? [pointer, dotted] : [pointer];
}

/** Reads the value at a path of `data`. @returns undefined if there is none */
export function readPath(data: unknown, { steps }: DataPath): unknown {
  let value = data;
  for (const { key, index } of steps) {
    if (Array.isArray(value)) value = index === undefined ? undefined : value[index];
    else if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    else value = (value as Record<string, unknown>)[key];
  }
  return value;
}
