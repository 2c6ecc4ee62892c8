import { realpathSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { failures } from '../src/errors.js';

const details: Readonly<Record<string, string>> = {
  faults: 'a message per wrong field or parameter',
  version: '`version`: the stored one; for groups and assets a message',
  message: '`message`',
};

/** `docs/errors.md`, from the table that the answers come from. */
export function errorsPage(): string {
  const rows = Object.values(failures).map(({ code, status, message, description, ...more }) =>
    ['', code, status, `\`${message}\``, 'details' in more ? details[more.details] : 'empty', description, '']
      .join(' | ')
      .trim(),
  );
  return `# Error codes

Made from \`src/errors.ts\` by \`npm run --silent errors > docs/errors.md\`. Every error answers
\`{"code": …, "message": …, "details": {…}}\`, in JSON or XML.

| code | HTTP status | message | details | when |
|---|---|---|---|---|
${rows.join('\n')}
`;
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) process.stdout.write(errorsPage());
