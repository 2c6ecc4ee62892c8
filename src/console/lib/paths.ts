/** `a.b` and its JSON Pointer `/a/b` are the same path. */
export function normalizePath(path: string): string {
  return path.startsWith('/') ? path : `/${path.replaceAll('~', '~0').replaceAll('/', '~1').replaceAll('.', '/')}`;
}

/** Returns the value at a path, as a series names it. */
export function valueAt(data: unknown, path: string): unknown {
  return normalizePath(path)
    .slice(1)
    .split('/')
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce<unknown>(
      (value, key) =>
        typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined,
      data,
    );
}
