/** `a.b` and its JSON Pointer `/a/b` are the same path. */
export function normalizePath(path: string): string {
  return path.startsWith('/') ? path : `/${path.replaceAll('~', '~0').replaceAll('/', '~1').replaceAll('.', '/')}`;
}

/** The keys that a path joins. */
export function keysOf(path: string): string[] {
  const keys = normalizePath(path).slice(1).split('/');
  return keys.map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** Returns the value at a path, as a series names it. */
export function valueAt(data: unknown, path: string): unknown {
  return keysOf(path).reduce<unknown>(
    (value, key) =>
      typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined,
    data,
  );
}

/** Finds the scalars in an object with their paths, at most as deep as people would choose from. */
export function findScalars(data: unknown, keys: readonly string[] = []): { path: string; value: unknown }[] {
  if (typeof data !== 'object') return keys.length === 0 ? [] : [{ path: joinPath(keys), value: data }];
  if (data === null || Array.isArray(data) || keys.length >= 4) return [];
  return Object.entries(data)
    .filter(([key]) => !key.includes(','))
    .flatMap(([key, value]) => findScalars(value, [...keys, key]));
}

/** Joins keys by dots, or as a JSON Pointer (RFC 6901) where dots would be read wrongly. */
export function joinPath(keys: readonly string[]): string {
  const isPlain = keys.every((key) => key !== '' && !key.includes('.') && !key.startsWith('/'));
  if (isPlain && !(keys.length === 1 && ['at', 'count', 'device'].includes(keys[0] ?? ''))) return keys.join('.');
  return keys.map((key) => `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}
