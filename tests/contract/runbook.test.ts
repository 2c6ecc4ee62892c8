import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { parse as parseYaml } from 'yaml';
import { nodesOf, parse } from '../support/syntax.js';

/** docs/runbook.md: an anchor for each alert, and for each line of the log from the level warn on. */
const page = readFileSync('docs/runbook.md', 'utf8');
const anchors = [...page.matchAll(/<a id="([^"]+)">/g)].map(([, id = '']) => id);
const headings = [...page.matchAll(/^### (DevicePlatform\w+)$/gm)].map(([, name = '']) => name);

interface SyntaxNode {
  type: string;
  value?: unknown;
  callee?: SyntaxNode;
  object?: SyntaxNode;
  property?: SyntaxNode;
  id?: SyntaxNode;
  key?: SyntaxNode;
  init?: SyntaxNode;
  arguments?: { expression: SyntaxNode }[];
  quasis?: { cooked: string }[];
}

const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !file.startsWith('console/'))
  .map((file) => `src/${file}`);
const texts = new Map(files.map((file) => [file, readFileSync(file, 'utf8')]));

/** Names of functions that write lines a minute: results of createRateLimitedLog, and what is declared as LogLine. */
function writersOf(text: string): Set<unknown> {
  const declared = [...text.matchAll(/\b(\w+)\??: LogLine\b/g)].map(([, name]) => name);
  const created = [...text.matchAll(/const (\w+) = createRateLimitedLog\(/g)].map(([, name]) => name);
  return new Set([...declared, ...created]);
}
const writers = new Set([...texts.values()].flatMap((text) => [...writersOf(text)]));

/** The message of a call that writes such a line: its text up to what is inserted, or the name of a variable. */
function messageOf({ type, callee, arguments: args = [] }: SyntaxNode, isRateLimited: boolean): SyntaxNode | undefined {
  if (type !== 'CallExpression' || callee === undefined) return undefined;
  const { object, property } = callee;
  const isLog = object?.value === 'log' || object?.property?.value === 'log';
  const name = callee.type === 'Identifier' ? callee.value : property?.value;
  if (!isLog && isRateLimited && writers.has(name)) return args[0]?.expression;
  return isLog && /^(?:warn|error|fatal)$/.test(String(property?.value)) ? args[1]?.expression : undefined;
}

const toAnchor = (text: string) =>
  text
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter(Boolean)
    .join('-');

it('has an anchor for each alert, which the alert names', () => {
  const { groups } = parseYaml(readFileSync('docs/alerts.yml', 'utf8'));
  const rules: { alert: string; annotations: { runbook_url: string } }[] = groups.flatMap(
    (group: { rules: object[] }) => group.rules,
  );
  expect(headings).toEqual(rules.map(({ alert }) => alert));
  expect(rules.map(({ annotations }) => annotations.runbook_url)).toEqual(
    headings.map((name) => `docs/runbook.md#${name.toLowerCase()}`),
  );
});

it('has an anchor for each line of the log from the level warn on, and no other', () => {
  // messages of errors.ts, with the status 503
  const messages = ['BD error', 'exception', 'overloaded'];
  const variables: string[] = [];
  for (const [file, text] of texts) {
    const isRateLimited = text.includes('rate-limited-log') || text.includes('LogLine');
    for (const node of nodesOf(parse(text)) as Generator<SyntaxNode>) {
      const message = messageOf(node, isRateLimited);
      if (message?.type === 'StringLiteral') messages.push(String(message.value));
      else if (message?.type === 'TemplateLiteral')
        messages.push(message.quasis?.map(({ cooked }) => cooked).find((part) => part !== '') ?? '');
      else if (message !== undefined) variables.push(`${file} ${message.value}`);
      // of jobs on due work
      const { type, key, value } = node;
      if (type === 'KeyValueProperty' && key?.value === 'failure' && (value as SyntaxNode).type === 'StringLiteral')
        messages.push(String((value as SyntaxNode).value));
    }
  }
  expect(variables.sort()).toEqual([
    'src/db/due-work.ts failure',
    'src/http/error-handler.ts message',
    'src/http/error-handler.ts message',
    'src/http/error-handler.ts message',
    'src/import/endpoint.ts message',
  ]);
  expect([...anchors].sort()).toEqual([...new Set(messages.map(toAnchor))].sort());
  expect(messages.length).toBeGreaterThan(50);
});

it('has at most 1,500 words', () => {
  const visible = page.replaceAll(/<[^>]*>|\]\([^)]*\)/g, '');
  expect(visible.split(/\s+/).length).toBeLessThanOrEqual(1500);
});
