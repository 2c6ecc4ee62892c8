import type { Schema } from '../schema/fields.js';

/** Explanation of the import in the OpenAPI document. */
export const uploadDescription =
  'Takes lines of JSON or CSV of any number, each at most 1 MiB: the fields of a create or of a stream, `resource` (the type) and, if it is to be kept, `id_developer`. Parents stand before their children. Each line is answered by a line `{line, code, id_developer, details}` while the rest is still sent; the last line is `{totals}`. A program that sends more than it reads in the end waits for itself: read while you send.';

const lines = [
  { resource: 'project', name: 'Harbour', id_customer: 'c-1001' },
  { resource: 'service', name: 'Cranes', id_project: 'Harbour@demo' },
];

const ndjson = `${lines.map((line) => JSON.stringify(line)).join('\n')}\n`;

/** Bodies of an import by media type; of any other one, the first line says which of the two it is. */
export const uploadExamples: Readonly<Record<string, string>> = {
  'application/x-ndjson': ndjson,
  'text/csv': 'resource,name,id_customer,enabled\r\nproject,Harbour,c-1001,true\r\n',
  // of the three, the one that all generators of clients know
  'application/octet-stream': ndjson,
};

/** One line of the answer. */
export const outcomeSchema: Schema = {
  title: 'ImportOutcome',
  type: 'object',
  description: 'The outcome of one line; the last line has `totals` only.',
  properties: {
    line: { type: 'integer', format: 'int64', description: 'Number of the line, from 1.', examples: [1] },
    code: {
      type: 'integer',
      format: 'int64',
      description: '2001: created. 2005: updated. 2007: skipped. Else the code of an error.',
      examples: [2001],
    },
    id_developer: { type: 'string', description: 'Identifier of the object.', examples: ['Harbour@demo'] },
    details: {
      type: 'object',
      additionalProperties: true,
      description: 'Of an error, as elsewhere.',
      examples: [{ name: 'is required' }],
    },
    totals: {
      type: 'object',
      additionalProperties: true,
      description: 'Numbers of lines: `created`, `updated`, `skipped`, `failed`.',
      examples: [{ created: 2, updated: 0, skipped: 0, failed: 0 }],
    },
  },
  additionalProperties: false,
};
