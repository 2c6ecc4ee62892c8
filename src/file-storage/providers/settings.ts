import { text, textMatching } from '../../schema/fields/text.js';
import type { FieldType } from '../../schema/fields.js';
import { isStorageAddress } from '../egress.js';
import { isSafeRelativePath } from './provider.js';

/** `isSafeRelativePath` as a regular expression, for the OpenAPI document. */
const folderPattern = '^(?:\\.|(?!/)(?!(?:.*/)?\\.{1,2}(?:/|$)).*)$';
const visible = '^[\\u0021-\\u007e]+$';

/** The address of a server: http or https with nothing but host, port and path. */
export function address(): FieldType {
  return textMatching(1000, isStorageAddress, 'an http or https address without user, query and fragment');
}

/** A value for headers and signatures: ASCII without spaces. */
export function token(max: number): FieldType {
  const pattern = new RegExp(visible);
  return textMatching(max, (value) => pattern.test(value), 'ASCII characters without spaces', { pattern: visible });
}

/** A setting that is stored encrypted and never shown. */
export function secret(type: FieldType = text(1000)): FieldType {
  return { ...type, responseSchema: 'never', schema: { ...type.schema, format: 'password', writeOnly: true } };
}

/** A relative path of a folder; empty or `.` for the folder it is relative to. */
export function folder(): FieldType {
  const type = text(1000, { min: 0 });
  return {
    ...type,
    body(value, path, faults) {
      const folderPath = type.body(value, path, faults);
      if (folderPath === '.') return '';
      if (typeof folderPath === 'string' && (folderPath.startsWith('/') || !isSafeRelativePath(folderPath)))
        faults[path] = 'must be a path that does not begin with / and has no . and .. segments';
      return folderPath;
    },
    schema: { ...type.schema, pattern: folderPattern },
  };
}
