import { text, textMatching } from '../schema/fields/text.js';
import type { FieldType } from '../schema/fields.js';
import { isStorageAddress } from './egress.js';
import { staysBelow } from './provider.js';

/** What a regular expression can say of such a path. */
const folderPattern = '^(?!/)(?!(?:.*/)?\\.{1,2}(?:/|$)).*$';
const visible = '^[\\u0021-\\u007e]+$';

/** Where a storage is: http or https, and nothing but host, port and path. */
export function address(): FieldType {
  return textMatching(1000, isStorageAddress, 'an http or https address without user, query and fragment', {
    examples: ['https://storage.example/files/'],
  });
}

/** What goes into headers and signatures: ASCII without spaces. */
export function token(max: number): FieldType {
  const pattern = new RegExp(visible);
  return textMatching(max, (given) => pattern.test(given), 'ASCII characters without spaces', { pattern: visible });
}

/** Something that is stored encrypted and never shown. */
export function secret(kind: FieldType = text(1000)): FieldType {
  return { ...kind, responseSchema: 'never', schema: { ...kind.schema, format: 'password', writeOnly: true } };
}

/** A folder below another one, by a path that cannot leave it; empty or `.` for that one itself. */
export function folder(): FieldType {
  const kind = text(1000, { min: 0 });
  return {
    ...kind,
    body(value, path, faults) {
      const given = kind.body(value, path, faults);
      if (given === '.') return '';
      if (typeof given === 'string' && (given.startsWith('/') || !staysBelow(given)))
        faults[path] = 'must be a path that does not begin with / and has no . and .. segments';
      return given;
    },
    schema: { ...kind.schema, pattern: folderPattern, examples: ['reports/2026'] },
  };
}
