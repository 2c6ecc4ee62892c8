import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { isPlainObject } from '../src/schema/fields/object.js';

/**
 * Writes the types of the console from the schemas of /openapi.json:
 *
 *   node scripts/run.js dist/scripts/console-types.js http://127.0.0.1:3000/openapi.json
 *
 * tests/console/serving.test.ts fails while the file and the document differ.
 */
const [, , address] = process.argv;
const target = 'src/console/api/interface.ts';
/** Objects that the console reads by name; all others it handles by their schemas. */
const names = ['Alarm', 'Device', 'Stream', 'StorageFile', 'SeriesMetadata', 'Self', 'Status', 'EventText'];

/** Formats the schemas that the console reads by name as TypeScript. */
export function formatConsoleTypes(schemas: Readonly<Record<string, unknown>>): string {
  const types = names.map((name) => {
    const schema = asObject(schemas[name]);
    const members = Object.entries(asObject(schema.properties)).map(([member, value]) =>
      formatMember(schema, member, value),
    );
    return `/** ${String(schema.description)} */\nexport interface ${toTypeName(name)} {\n${members.join('')}}\n`;
  });
  return ['// Written by scripts/console-types.ts from /openapi.json.\n', ...types].join('\n');
}

/** `Status` would be read as that of a device. */
function toTypeName(name: string): string {
  return name === 'Status' ? 'StatusAnswer' : name;
}

function formatMember(owner: Readonly<Record<string, unknown>>, member: string, value: unknown): string {
  const isRequired = Array.isArray(owner.required) && owner.required.includes(member);
  return `  ${member}${isRequired ? '' : '?'}: ${formatType(asObject(value))};\n`;
}

function formatType(schema: Readonly<Record<string, unknown>>): string {
  if (Array.isArray(schema.enum))
    return schema.enum.map((word) => (typeof word === 'string' ? `'${word}'` : word)).join(' | ');
  if (schema.type === undefined && schema.$ref === undefined) return 'unknown';
  const types = [schema.type].flat().map((type) => {
    if (type === 'integer' || type === 'number') return 'number';
    return type === 'string' || type === 'boolean' || type === 'null' ? type : 'Record<string, unknown>';
  });
  return [...new Set(types)].join(' | ');
}

function asObject(value: unknown): Readonly<Record<string, unknown>> {
  return isPlainObject(value) ? value : {};
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const response = await fetch(address ?? 'http://127.0.0.1:3000/openapi.json');
  const document = asObject(await response.json());
  const text = formatConsoleTypes(asObject(asObject(document.components).schemas));
  if (readFileSync(target, { encoding: 'utf8', flag: 'a+' }) !== text) writeFileSync(target, text);
}
