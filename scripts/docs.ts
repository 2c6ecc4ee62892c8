import { readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { readConfig, type Variable, variables } from '../src/config.js';
import { deriveIndexes, type Index, sortPaths } from '../src/db/indexes.js';
import { failures } from '../src/errors.js';
import type { Endpoint } from '../src/http/context.js';
import { silentLog } from '../src/lib/log.js';
import { createMetrics } from '../src/metrics/metrics.js';
import { collections } from '../src/resources/index.js';
import { startService } from '../src/service/service.js';
import { createFactsWriter, printTypes } from './reference-facts.js';

/** Lists between `<!-- NAME: … -->` and `<!-- /NAME -->` of a page. */
const lists = [
  { page: 'docs/reference/configuration.md', name: 'variables', source: 'src/config.ts', print: printVariables },
  { page: 'docs/reference/errors.md', name: 'errors', source: 'src/errors.ts', print: printErrors },
  { page: 'docs/operations.md', name: 'metrics', source: 'src/metrics', print: printMetrics },
  { page: 'docs/reference/resources.md', name: 'types', source: 'src/resources', print: printTypes },
  { page: 'docs/indexes.md', name: 'indexes', source: 'src/resources', print: printIndexes },
];
const reference = 'docs/reference';
const max_line_length = 120;

/** Writes what documents repeat of the code. @returns texts by file @throws Error if a page lacks its markers */
export async function generateDocuments(): Promise<Map<string, string>> {
  const facts = createFactsWriter(await listOperations());
  const pages = readdirSync(reference).map((file) => join(reference, file));
  const texts = new Map(pages.map((page) => [page, facts.write(page, readFileSync(page, 'utf8'))]));
  facts.assertComplete();
  texts.set('.env.example', printExample());
  const sorts = { page: 'docs/reference/lists.md', name: 'sorts', source: 'src/resources', print: facts.printSorts };
  for (const { page, name, source, print } of [...lists, sorts]) {
    const text = texts.get(page) ?? readFileSync(page, 'utf8');
    const begin = `<!-- ${name}: written by \`npm run docs\` from ${source} -->\n\n`;
    const end = `\n<!-- /${name} -->\n`;
    const [from, to] = [text.indexOf(begin), text.indexOf(end)];
    if (from < 0 || to < from) throw new Error(`${page} must hold the markers ${begin.trim()} and ${end.trim()}`);
    texts.set(page, text.slice(0, from) + begin + (await print()) + text.slice(to));
  }
  return texts;
}

/** Lists the operations of a service without a database. */
export async function listOperations(): Promise<readonly Endpoint[]> {
  const service = await startService({
    ...{ uri: 'mongodb://127.0.0.1:1/none', secret_key: 'of no service', log: silentLog, print() {}, jobs: [] },
    config: readConfig({ PORT: '0', MQTT_PORT: 'off', CONSOLE: 'off', LOG_FORMAT: 'off' }),
  });
  await service.stop();
  return service.app.operations;
}

const code = (text: string) => `\`${text}\``;

const listVariables = () => Object.entries<Variable>(variables);

function printVariables(): string {
  const rows = listVariables().map(([name, { fallback, shownDefault, meaning }]) => {
    const shown = shownDefault ?? (fallback && code(fallback));
    return `- ${code(name)}${shown ? ` (${shown})` : ''}: ${meaning}\n`;
  });
  return rows.join('');
}

function printExample(): string {
  const intro = [
    'All variables of the service with their defaults, as in docs/reference/configuration.md. Copy this file to .env, change it, and run',
    '  set -a; . ./.env; set +a; npm start',
    'A value with a space or one of & $ ; # " stands in single quotes.',
    'The command line tools read the same variables. compose.yaml passes on those that it names.',
  ];
  const entries = listVariables().map(([name, { fallback = '', meaning }]) => {
    const text = meaning.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll('`', '');
    return `${comment(`${text[0]?.toUpperCase()}${text.slice(1)}.`)}${name}=${fallback}\n`;
  });
  return [intro.map(comment).join(''), ...entries].join('\n');
}

/** Wraps a text into lines that begin with `# `. */
function comment(text: string): string {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = `${lines.at(-1) ?? '#'} ${word}`;
    if (lines.length > 0 && line.length <= max_line_length) lines[lines.length - 1] = line;
    else lines.push(`# ${word}`);
  }
  return `${lines.join('\n')}\n`;
}

const details: Readonly<Record<string, string>> = {
  faults: 'a text for each',
  key: '`service.apikey`: `is missing` or `is not valid`; none for a storage',
  version: '`version`: the stored one, for groups and assets a sentence; `matched` of [many objects](bulk.md)',
  message: '`message`',
};

function printErrors(): string {
  const rows = Object.values(failures).map(({ code: number, status, message, description, ...more }) => {
    const shown = 'details' in more ? `; details: ${details[more.details]}` : '';
    return `- ${number} (${status}) ${code(message)}: ${description}${shown}\n`;
  });
  return rows.join('');
}

/** A declared metric. */
export interface DeclaredMetric {
  name: string;
  type: string;
  labelNames: readonly string[];
  help: string;
}

/** Lists all metrics in the order of their declaration, those of the runtime last. */
export async function listMetrics(): Promise<DeclaredMetric[]> {
  const { registry } = createMetrics({
    version: '',
    readState: () => ({ isReady: false, hasPrimary: false, clock_offset_ms: 0 }),
  });
  const snapshot = await registry.getMetricsAsJSON();
  return snapshot.map(({ name, help, type }) => {
    const { labelNames = [] } = registry.getSingleMetric(name) as { labelNames?: readonly string[] };
    return { name, type: String(type), labelNames: labelNames.filter((label) => label !== 'le'), help };
  });
}

async function printMetrics(): Promise<string> {
  const metrics = await listMetrics();
  const isOfRuntime = ({ name }: DeclaredMetric) => /^(?:process|nodejs)_/.test(name);
  const rows = metrics
    .filter((metric) => !isOfRuntime(metric))
    .map(({ name, type, labelNames, help }) => {
      const labels = labelNames.map(code).join(', ');
      return `- ${code(name)}${labels === '' ? '' : ` (${labels})`}, ${type}: ${help.replace(/\.$/, '')}\n`;
    });
  return `${rows.join('')}- \`process_…\` and \`nodejs_…\`: the defaults of prom-client\n`;
}

/** One line for the collections that have the same indexes; an index of several collections is in one line. */
function printIndexes(): string {
  const collectionsOf = new Map<string, string[]>();
  for (const type of collections)
    for (const index of deriveIndexes(type)) {
      const shown = printIndex(type, index);
      collectionsOf.set(shown, [...(collectionsOf.get(shown) ?? []), code(type.plural)]);
    }
  const indexesOf = new Map<string, string[]>();
  for (const [shown, collected] of collectionsOf) {
    const names = collected.join(', ');
    indexesOf.set(names, [...(indexesOf.get(names) ?? []), shown]);
  }
  return [...indexesOf].map(([names, indexes]) => `- ${names}: ${indexes.join('; ')}\n`).join('');
}

function printIndex(type: (typeof collections)[number], { key, unique, partialFilterExpression }: Index): string {
  const paths = Object.keys(key);
  const order = 'defaultSort' in type ? sortPaths(type, type.defaultSort) : [];
  const isOfAccount = paths[0] === 'account';
  const isSorted =
    !unique &&
    order.length > 0 &&
    paths.length > order.length + 1 &&
    paths.slice(-order.length).join() === order.join();
  const shown = paths.slice(isOfAccount ? 1 : 0, isSorted ? -order.length : undefined).join(', ');
  const notes = [unique && 'unique', Object.values(key).includes('2dsphere') && '2dsphere'];
  const note = notes.filter(Boolean).join(', ');
  return `${isOfAccount ? '' : '*'}${shown}${isSorted ? '+' : ''}${partialFilterExpression ? '?' : ''}${note && ` (${note})`}`;
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href)
  for (const [file, text] of await generateDocuments()) writeFileSync(file, text);
