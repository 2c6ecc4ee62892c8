import { readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { failures } from '../src/errors.js';

const page = 'docs/reference/errors.md';
const begin = '<!-- errors: written by `npm run errors` from src/errors.ts -->\n\n';
const end = '\n<!-- /errors -->\n';

const details: Readonly<Record<string, string>> = {
  faults: 'a message per wrong field or parameter',
  key: '`service.apikey`: `is missing` or `is not valid`; empty for a storage',
  version: '`version`: the stored one; for groups and assets a message; `matched` of [many objects](bulk.md)',
  message: '`message`',
};

/** Replaces the table between the markers with one made from `failures`. @throws Error without the markers */
export function withErrorTable(text: string): string {
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${page} must hold the markers ${begin.trim()} and ${end.trim()}`);
  return text.slice(0, from) + begin + errorTable() + text.slice(to);
}

function errorTable(): string {
  const rows = Object.values(failures).map(({ code, status, message, description, ...more }) =>
    ['', code, status, `\`${message}\``, 'details' in more ? details[more.details] : 'empty', description, '']
      .join(' | ')
      .trim(),
  );
  return `| code | HTTP status | message | details | when |
|---|---|---|---|---|
${rows.join('\n')}
`;
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href)
  writeFileSync(page, withErrorTable(readFileSync(page, 'utf8')));
