import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { generateDocuments } from '../../scripts/docs.js';

it('has the documents that `npm run docs` writes', async () => {
  const generated = await generateDocuments();
  expect([...generated.keys()].sort()).toEqual([
    '.env.example',
    'docs/indexes.md',
    'docs/operations.md',
    'docs/reference/configuration.md',
    'docs/reference/errors.md',
  ]);
  for (const [file, text] of generated) expect([file, readFileSync(file, 'utf8')]).toEqual([file, text]);
});
