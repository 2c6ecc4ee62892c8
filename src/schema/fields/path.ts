import { type DataPath, parseDataPath } from '../data-path.js';
import type { FieldType } from '../fields.js';
import { textMatching } from './text.js';

/** Code points of a path. */
export const max_path_length = 500;

const pathHint = 'keys joined by dots, or a JSON Pointer';

/** Parses a path of one parameter or field, in which only a JSON Pointer may hold a comma. */
export function parseSinglePath(text: string): DataPath | undefined {
  return !text.startsWith('/') && text.includes(',') ? undefined : parseDataPath(text);
}

/** A path into the `data` of streams (reference/series.md#paths), stored as it is written. */
export function dataPath(): FieldType {
  return textMatching(max_path_length, (text) => parseSinglePath(text) !== undefined, pathHint);
}
