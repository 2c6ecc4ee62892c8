import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { generateDocuments } from '../../scripts/docs.js';

it('has the documents that `npm run docs` writes', async () => {
  const generated = await generateDocuments();
  const pages = readdirSync('docs/reference').map((file) => `docs/reference/${file}`);
  expect([...generated.keys()].sort()).toEqual(
    ['.env.example', 'docs/indexes.md', 'docs/operations.md', ...pages].sort(),
  );
  for (const [file, text] of generated) expect([file, readFileSync(file, 'utf8')]).toEqual([file, text]);
});

it('shows a client in TypeScript as scripts/clients compiles one', () => {
  const [reference, program, targets] = [
    'docs/reference/configuration.md',
    'scripts/clients/round-trips/openapi-fetch.ts',
    'scripts/clients/targets.ts',
  ].map((file) => readFileSync(file, 'utf8'));
  expect(reference).toContain("createClient<paths, 'application/json'>({ baseUrl");
  expect(program).toContain("createClient<paths, 'application/json'>({ baseUrl");
  expect(reference).toContain('typescript@5');
  expect(targets).toMatch(/typescript: '5\./);
});
