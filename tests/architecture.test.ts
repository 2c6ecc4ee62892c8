import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, it } from '@jest/globals';
import {
  declarationOf,
  exportedFunctionsOf,
  functionLengthsOf,
  namesOf,
  nodesOf,
  parse,
  valueNamesOf,
} from './support/syntax.js';
import { wordsOf } from './support/words.js';

/**
 * The rules of docs/architecture.md. Lists called `pending` name violations that are still to be removed: nothing may be
 * added, and an entry whose violation is gone must be deleted.
 */
interface Source {
  /** Relative to the folder, such as `http/streams.ts`. */
  file: string;
  /** Without comments. */
  code: string;
  text: string;
  /** Imported files, relative to the folder. */
  imports: string[];
  packages: string[];
}

function readSources(folder: string): Source[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file))
    .map((file) => {
      const text = readFileSync(join(folder, file), 'utf8');
      const code = text.replaceAll(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm, '');
      const specifiers = [...code.matchAll(/\b(?:from|import)\s*\(?'([^']+)'/g)].map(([, name = '']) => name);
      return {
        file,
        code,
        text,
        imports: specifiers
          .filter((name) => name.startsWith('.'))
          .map((name) => normalize(join(dirname(file), name)).replace(/\.js$/, '.ts'))
          .map((name) => (existsSync(join(folder, `${name}x`)) ? `${name}x` : name)),
        packages: specifiers.filter((name) => !name.startsWith('.')).map((name) => name.replace(/^node:/, '')),
      };
    });
}

const isConsole = (file: string) => file.startsWith('console/');
/** The service; the console runs in browsers and has rules of its own. */
const sources = readSources('src').filter(({ file }) => !isConsole(file));
/** The console, relative to its folder. */
const consoleSources = readSources('src/console');
/** Sources of src/, demo/, scripts/ and tests/ without the console, relative to the repository. */
const allSources = ['src', 'demo', 'scripts', 'tests'].flatMap((folder) =>
  (folder === 'src' ? sources : readSources(folder)).map((source) => ({
    ...source,
    file: join(folder, source.file),
    imports: source.imports.map((file) => normalize(join(folder, file))),
  })),
);

/** Compares violations with those that are pending. */
function expectOnlyPending(violations: readonly string[], pending: readonly string[]): void {
  const found = [...new Set(violations)].sort();
  expect({
    added: found.filter((violation) => !pending.includes(violation)),
    fixed: pending.filter((violation) => !found.includes(violation)),
  }).toEqual({ added: [], fixed: [] });
}

/** Lowest layer first: a file imports from its own folder and from lower layers, never from its own layer. */
const layers = [
  ['errors'],
  ['lib'],
  ['egress'],
  ['schema', 'config', 'mongod'],
  ['resources'],
  ['serialize'],
  ['db'],
  ['objects'],
  ['summaries'],
  ['http'],
  ['device-state'],
  ['commands'],
  ['streams', 'events', 'file-storage', 'device-configs', 'alarms', 'oidc'],
  ['mqtt', 'webhooks', 'import'],
  ['backup'],
  ['metrics'],
  ['service'],
  ['main', 'cli'],
];

/** The rooms of the console in the same order. */
const consoleLayers = [
  ['lib'],
  ['api'],
  ['ui'],
  ['forms'],
  ['charts'],
  ['map'],
  ['lists'],
  ['edit'],
  ['alarms', 'events', 'import', 'keys', 'mqtt', 'storage', 'webhooks'],
  ['device', 'overview'],
  ['objects'],
  ['shell'],
  ['views'],
  ['router'],
  ['main', 'vite.config'],
];
const folderOf = (file: string) =>
  file.includes('/') ? file.slice(0, file.indexOf('/')) : file.replace(/\.tsx?$/, '');

it.each([
  ['src/', sources, layers, 50],
  ['src/console/', consoleSources, consoleLayers, 20],
] as const)('knows the layer of every file of %s, and imports one way', (_folder, files, order, min_files) => {
  const layerOf = (file: string) => order.findIndex((names) => names.includes(folderOf(file)));
  expect(files.filter(({ file }) => layerOf(file) < 0).map(({ file }) => file)).toEqual([]);
  expect(files.length).toBeGreaterThan(min_files);
  const upwards = files.flatMap(({ file, imports }) =>
    imports
      .filter((other) => folderOf(other) !== folderOf(file) && layerOf(other) >= layerOf(file))
      .map((other) => `${file} → ${other}`),
  );
  expect(upwards).toEqual([]);
});

it('has at most 190 arrows between folders of src/: the number may only fall', () => {
  const arrows = sources.flatMap(({ file, imports }) =>
    imports
      .filter((other) => folderOf(other) !== folderOf(file))
      .map((other) => `${folderOf(file)} → ${folderOf(other)}`),
  );
  expect(new Set(arrows).size).toBeLessThanOrEqual(190);
});

it('imports nothing of demo/, scripts/ or tests/ in src/, and only cli/ and lib/ in demo/', () => {
  const outwards = allSources
    .filter(({ file }) => file.startsWith('src/'))
    .flatMap(({ imports }) => imports.filter((other) => !other.startsWith('src/')));
  const ofDemo = allSources.filter(({ file }) => file.startsWith('demo/')).flatMap(({ imports }) => imports);
  expect(outwards).toEqual([]);
  expect(ofDemo.length).toBeGreaterThan(0);
  expect(ofDemo.filter((other) => !/^(?:demo|src\/cli|src\/lib)\//.test(other))).toEqual([]);
});

it('has no import cycle', () => {
  const pending: string[] = [];
  const files = [...allSources, ...consoleSources];
  const importsOf = new Map(files.map(({ file, imports }) => [file, imports]));
  const reachableFrom = (start: string): Set<string> => {
    const reached = new Set<string>();
    const queue = [...(importsOf.get(start) ?? [])];
    for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
      if (reached.has(file)) continue;
      reached.add(file);
      queue.push(...(importsOf.get(file) ?? []));
    }
    return reached;
  };
  const cyclic = files.map(({ file }) => file).filter((file) => reachableFrom(file).has(file));
  expectOnlyPending(cyclic, pending);
});

it.each([
  ['express', /^(?:http\/|service\/app\.ts$)|[/-]endpoints?\.ts$/],
  ['mongoose', /^(?!(?:lib|egress|schema|resources|http|import|metrics|cli|backup)\/)/],
  ['mongodb', /^db\//],
  ['zod', /^(?:schema\/|config\.ts$)/],
  ['jose', /^oidc\//],
  ['cluster', /^(?:main|service\/workers)\.ts$/],
  ['child_process', /^mongod\//],
])('imports %s only in its layers', (name, where) => {
  const users = sources.filter(({ packages }) => packages.some((used) => used === name || used.startsWith(`${name}/`)));
  expect(users.map(({ file }) => file).filter((file) => !where.test(file))).toEqual([]);
});

it.each(['express', 'helmet', 'mongoose', 'morgan', 'xmlbuilder2', 'zod'])(
  'keeps %s, which the owner has chosen (docs/decisions/0001-libraries.md)',
  (name) => {
    const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
    const users = sources.filter(({ packages }) => packages.includes(name)).map(({ file }) => file);
    expect([users.length > 0, Object.keys(dependencies)]).toEqual([true, expect.arrayContaining([name])]);
  },
);

it('reads the environment in one place', () => {
  const readers = sources.filter(({ code }) => /\bprocess\.env\b/.test(code)).map(({ file }) => file);
  expect(readers.filter((file) => !file.startsWith('cli/'))).toEqual(['main.ts']);
});

it('imports by file name, exports by name, and re-exports only in resources/index.ts', () => {
  const violations = sources.flatMap(({ file, code }) => [
    ...[...code.matchAll(/from '(\.[^']*)'/g)].filter(([, name = '']) => !name.endsWith('.js')).map(([line]) => line),
    ...[...code.matchAll(/^export (?:default|\*).*/gm)].map(([line]) => line),
    ...(file === 'resources/index.ts' ? [] : [...code.matchAll(/^export .* from .*/gm)].map(([line]) => line)),
  ]);
  expect(violations).toEqual([]);
});

/** Syntax trees of src/, demo/, scripts/ and tests/, and those of src/ alone. */
const allTrees = allSources.map(({ file, text }) => ({ file, text, tree: parse(text) }));
const trees = allTrees
  .filter(({ file }) => file.startsWith('src/'))
  .map(({ file, ...source }) => ({ file: file.slice(4), ...source }));
/** Names of variables, parameters and members. */
const valueNames = allTrees.map(({ file, tree }) => ({ file, names: valueNamesOf(tree) }));
const exportedFunctions = trees.flatMap(({ tree }) => exportedFunctionsOf(tree));

it('names exported functions with a verb', () => {
  const verbs = wordsOf(`
    acquire adopt align allow append apply assert authenticate await begin bind build check choose claim close coalesce collect compare
    compile confirm connect convert copy count create decode define delete deliver derive describe disable dispatch
    download encode end ensure escape extend fetch find finish follow format generate get group handle hash hoist hold ignore ingest initialize insert issue join keep limit link list
    listen load locate lock log match merge migrate mount move notify open parse place plan prepare print publish read record
    reauthorize redact refresh refuse reject release remove rename replace replay report require reschedule
    reseal resolve restore resume rethrow retry revoke rotate run save schedule seal select send serve set settle show simulate sort
    split start stop take throw track unlink update upgrade verify wait warn watch withdraw wrap write
  `);
  const patterns = [
    new RegExp(`^(?!openApi)(?:${verbs.join('|')})(?=[A-Z]|$)`),
    // predicates
    /^(?:is|are|has|can)[A-Z]/,
    // conversions, and work with a resource that is released afterwards
    /^(?:to|from|with)[A-Z]|[a-z](?:To|From)[A-Z]/,
    // properties of the argument
    /[a-z]Of(?:[A-Z]|$)/,
    // parts of the HTTP application
    /(?:Endpoints|Router|Routes|Middleware)$/,
    // parts of the OpenAPI document
    /(?:Schema|Responses)$/,
  ];
  // field types read as nouns in declarations, `required(text(50))`, and middleware in `app.use(accessLog(…))`
  const constructed = ['FieldType', 'Field', 'RequestHandler', 'ErrorRequestHandler'];
  const pending: string[] = [];
  const violations = exportedFunctions
    .filter(({ returns }) => !constructed.includes(returns ?? ''))
    .map(({ name }) => name)
    .filter((name) => !patterns.some((pattern) => pattern.test(name)));
  expect(exportedFunctions.length).toBeGreaterThan(200);
  expectOnlyPending(violations, pending);
});

it('has no two exported types with one name', () => {
  const pending: string[] = [];
  const types = trees.flatMap(({ tree }) =>
    tree.body.flatMap((item) => {
      const isType = /^(?:TsInterface|TsTypeAlias|TsEnum|Class)Declaration$/.test(declarationOf(item).type);
      return item.type === 'ExportDeclaration' && isType ? namesOf(item.declaration) : [];
    }),
  );
  expect(types.length).toBeGreaterThan(100);
  expectOnlyPending(
    types.filter((name, index) => types.indexOf(name) !== index),
    pending,
  );
});

/** Types and values of ECMAScript, the DOM and Node. */
function globalNames(): Set<string> {
  const platforms = readdirSync('node_modules/@typescript').map((name) =>
    join('node_modules/@typescript', name, 'lib'),
  );
  const libraries = platforms.flatMap((folder) =>
    readdirSync(folder)
      .filter((file) => /^lib\.(?:es|dom)\w*(?:\.\w+)*\.d\.ts$/.test(file))
      .map((file) => readFileSync(join(folder, file), 'utf8')),
  );
  const declared = libraries.flatMap((text) =>
    [...text.matchAll(/^(?:declare )?(?:interface|type|var|class|function) ([A-Z]\w*)/gm)].map(([, name = '']) => name),
  );
  const ofNode = wordsOf(`
    Buffer clearTimeout console crypto fetch global performance process queueMicrotask require setImmediate setInterval
    setTimeout structuredClone
  `);
  return new Set([...declared, ...ofNode]);
}

it('declares no name that shadows a global', () => {
  const pending: string[] = [];
  const names = globalNames();
  for (const known of ['Record', 'Partial', 'Map', 'Response', 'Event', 'Node', 'Range', 'Storage', 'Document'])
    expect(names).toContain(known);
  const declared = allTrees.flatMap(({ tree }) => tree.body.flatMap((item) => namesOf(declarationOf(item))));
  expectOnlyPending(
    declared.filter((name) => names.has(name)),
    pending,
  );
});

it('names limits max_ and min_, and writes units in snake_case', () => {
  const pending: string[] = [];
  const isLimit = (name: string) => /^(?:most|fewest|least|longest|shortest)(?:_|[A-Z]|$)/i.test(name);
  // `MS` is the spelling of the MongoDB driver
  const isCamelCaseUnit = (name: string) => /[a-z](?:Ms|Seconds|Minutes|Hours|Bytes)$/.test(name);
  const names = valueNames.flatMap((file) => file.names);
  expect(names.length).toBeGreaterThan(5000);
  expectOnlyPending(
    names.filter((name) => isLimit(name) || isCamelCaseUnit(name)),
    pending,
  );
});

it('names local values by what they are', () => {
  // broker sessions are yet to be renamed
  const named = valueNames.filter(({ file }) => /^src\/(?!mqtt\/sessions\/)/.test(file));
  const violations = named.flatMap(({ file, names }) =>
    names.filter((name) => ['given', 'known', 'one'].includes(name)).map((name) => `${file} ${name}`),
  );
  expect(violations).toEqual([]);
});

it('has no file of more than 350 lines in src/', () => {
  /** Files that may be longer, with the reason. */
  const exceptions: Readonly<Record<string, string>> = {};
  const pending: string[] = [];
  const max_lines = 350;
  const long = sources.filter(({ text }) => text.trimEnd().split('\n').length > max_lines).map(({ file }) => file);
  expectOnlyPending(long, [...pending, ...Object.keys(exceptions)]);
});

it('has no function of more than 60 lines in src/', () => {
  const pending = [
    'service/app.ts createApp',
    'backup/file.ts createBackupFile',
    'commands/endpoints.ts commandEndpoints',
    'db/gate.ts createGate',
    'db/leased-job.ts startLeasedJob',
    'db/open-database.ts openDatabase',
    'events/log-reader.ts startLogReader',
    'events/subjects.ts createSubjects',
    'file-storage/providers/xml.ts readXml',
    'http/connections.ts trackConnections',
    'http/live/feed.ts openFeed',
    'http/live/tail.ts createTail',
    'import/held-answers.ts holdAnswers',
    'lib/shares.ts createShares',
    'main.ts main',
    'service/service.ts startService',
    'streams/endpoints.ts streamEndpoints',
    'webhooks/deliverer.ts startDeliverySession',
  ];
  const long = trees.flatMap(({ file, tree, text }) =>
    functionLengthsOf(tree, text)
      .filter(({ lines }) => lines > 60)
      .map(({ name }) => `${file} ${name}`),
  );
  expectOnlyPending(long, pending);
});

it('has no `any` and no `!` outside schema/ and db/indexes.ts', () => {
  const loose = trees
    .filter(({ file }) => !/^(?:schema\/|db\/indexes\.ts$)/.test(file))
    .filter(({ tree }) =>
      [...nodesOf(tree)].some(
        ({ type, kind }) => type === 'TsNonNullExpression' || (type === 'TsKeywordType' && kind === 'any'),
      ),
    );
  expect(loose.map(({ file }) => file)).toEqual([]);
});

it('has no mutable module variables', () => {
  const variables = trees.filter(({ tree }) =>
    tree.body.some((item) => {
      const declared = declarationOf(item);
      return declared.type === 'VariableDeclaration' && declared.kind !== 'const';
    }),
  );
  expect(variables.map(({ file }) => file)).toEqual([]);
});

it('documents every exported function', () => {
  const found = sources.flatMap(({ file, text }) =>
    [...text.matchAll(/(.*)\nexport (?:async )?function\*? (\w+)|(.*)\nexport const (\w+) = (?:async )?\(/g)]
      .filter(([, before = '', , beforeConst = '']) => !/\*\/\s*$|^export .*;$/.test(before || beforeConst))
      .map(([, , name, , constant]) => `${file} ${name ?? constant}`),
  );
  expect(found).toEqual([]);
});

it('keeps the console and the service apart: they share the public interface only', () => {
  const outwards = consoleSources.flatMap(({ file, imports }) =>
    imports.filter((other) => other.startsWith('..')).map((other) => `${file} → ${other}`),
  );
  const inwards = sources.flatMap(({ file, imports }) =>
    imports.filter(isConsole).map((other) => `${file} → ${other}`),
  );
  expect([...outwards, ...inwards]).toEqual([]);
  const isLong = ({ text }: Source) => text.trimEnd().split('\n').length > 350;
  expect(consoleSources.filter(isLong).map(({ file }) => file)).toEqual([]);
  const usesRawMarkup = ({ code }: Source) => /dangerouslySetInnerHTML|\.innerHTML/.test(code);
  expect(consoleSources.filter(usesRawMarkup).map(({ file }) => file)).toEqual([]);
});

it('defines at most 30 terms in docs/glossary.md, each with existing files', () => {
  const lines = readFileSync('docs/glossary.md', 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  expect(lines.length).toBeGreaterThan(0);
  expect(lines.length).toBeLessThanOrEqual(30);
  for (const line of lines) expect(line).toMatch(/^- [^:]+: [^`]*(?:`\w+`[^`]*)*\(`[^`]+`(?:, `[^`]+`)*\)$/);
  const files = lines.flatMap((line) => [...(line.split(' (').at(-1) ?? '').matchAll(/`([^`]+)`/g)]);
  expect(files.map(([, file = '']) => file).filter((file) => !existsSync(file))).toEqual([]);
});
