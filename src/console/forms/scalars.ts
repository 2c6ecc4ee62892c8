/** Reads JSON; text that is none stays text. */
export function parseJson(text: string): unknown {
  if (text.trim() === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Reads `8` as a number, `true` as a boolean, and `"8"` as a text. */
export function parseScalar(text: string): unknown {
  const parsed = parseJson(text);
  return typeof parsed === 'object' ? text : parsed;
}

/** Writes a value so that `parseScalar` reads the same one. */
export function formatScalar(value: unknown): string {
  if (typeof value !== 'string') return value === undefined || value === null ? '' : String(value);
  return parseScalar(value) === value ? value : JSON.stringify(value);
}
