import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, it } from '@jest/globals';
import { parseSync } from '@swc/core';

/** The rules of docs/architecture.md. Where one has exceptions, their list may only shrink. */
interface Source {
  /** Below src/, such as `http/streams.ts`. */
  file: string;
  /** Without comments. */
  code: string;
  text: string;
  /** Imported files, relative to src/. */
  imports: string[];
  packages: string[];
}

const sources: Source[] = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts'))
  .map((file) => {
    const text = readFileSync(join('src', file), 'utf8');
    const code = text.replaceAll(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm, '');
    const named = [...code.matchAll(/\b(?:from|import)\s*\(?'([^']+)'/g)].map(([, name = '']) => name);
    return {
      file,
      code,
      text,
      imports: named
        .filter((name) => name.startsWith('.'))
        .map((name) => normalize(join(dirname(file), name)).replace(/\.js$/, '.ts')),
      packages: named.filter((name) => !name.startsWith('.')).map((name) => name.replace(/^node:/, '')),
    };
  });

/** From below to above: a file imports from its own folder and from lower layers; those of one layer do not know each other. */
const layers = [
  ['errors', 'percent-decoding', 'catalogues'],
  ['schema', 'config', 'log', 'secret-key', 'mongod'],
  ['resources'],
  ['serialize'],
  ['db'],
  ['repositories'],
  ['telemetry', 'file-storage'],
  ['mqtt'],
  ['http'],
  ['app'],
  ['service'],
  ['workers'],
  ['main', 'cli'],
];
const folderOf = (file: string) => (file.includes('/') ? file.slice(0, file.indexOf('/')) : file.replace(/\.ts$/, ''));
const layerOf = (file: string) => layers.findIndex((names) => names.includes(folderOf(file)));

it('knows the layer of every file', () => {
  expect(sources.filter(({ file }) => layerOf(file) < 0).map(({ file }) => file)).toEqual([]);
  expect(sources.length).toBeGreaterThan(50);
});

it('imports one way', () => {
  const upwards = sources.flatMap(({ file, imports }) =>
    imports
      .filter((other) => folderOf(other) !== folderOf(file) && layerOf(other) >= layerOf(file))
      .map((other) => `${file} → ${other}`),
  );
  expect(upwards).toEqual([]);
});

it('imports in no circle', () => {
  const importsOf = new Map(sources.map(({ file, imports }) => [file, imports]));
  const done = new Set<string>();
  const circles: string[] = [];
  const follow = (file: string, path: readonly string[]) => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(' → '));
    if (path.includes(file) || done.has(file)) return;
    for (const other of importsOf.get(file) ?? []) follow(other, [...path, file]);
    done.add(file);
  };
  for (const { file } of sources) follow(file, []);
  expect(circles).toEqual([]);
});

it.each([
  ['express', /^(?:http\/|app\.ts$)/],
  ['mongoose', /^(?:db|mongod|repositories|serialize)\//],
  ['mongodb', /^db\//],
  ['zod', /^(?:schema\/|config\.ts$)/],
  ['aedes', /^mqtt\//],
  ['cluster', /^(?:main|workers)\.ts$/],
  ['child_process', /^mongod\//],
])('knows %s only where it belongs', (name, where) => {
  const users = sources.filter(({ packages }) => packages.some((used) => used === name || used.startsWith(`${name}/`)));
  expect(users.map(({ file }) => file).filter((file) => !where.test(file))).toEqual([]);
});

it('reads the environment in one place', () => {
  const readers = sources.filter(({ code }) => /\bprocess\.env\b/.test(code)).map(({ file }) => file);
  expect(readers.filter((file) => !file.startsWith('cli/'))).toEqual(['main.ts']);
});

it('imports by file name, exports by name, and gathers exports only in resources/index.ts', () => {
  const odd = sources.flatMap(({ file, code }) => [
    ...[...code.matchAll(/from '(\.[^']*)'/g)].filter(([, name = '']) => !name.endsWith('.js')).map(([line]) => line),
    ...[...code.matchAll(/^export (?:default|\*).*/gm)].map(([line]) => line),
    ...(file === 'resources/index.ts' ? [] : [...code.matchAll(/^export .* from .*/gm)].map(([line]) => line)),
  ]);
  expect(odd).toEqual([]);
});

/** Every node of a syntax tree. */
function* nodesOf(tree: unknown): Generator<Record<string, unknown>> {
  if (typeof tree !== 'object' || tree === null) return;
  if ('type' in tree) yield tree as Record<string, unknown>;
  for (const part of Object.values(tree)) yield* nodesOf(part);
}

const trees = sources.map(({ file, text }) => ({
  file,
  tree: parseSync(text, { syntax: 'typescript', target: 'es2022' }),
}));

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

it('has no variables that modules share', () => {
  const variables = trees.filter(({ tree }) =>
    tree.body.some((item) => {
      const declared = item.type === 'ExportDeclaration' ? item.declaration : item;
      return declared.type === 'VariableDeclaration' && declared.kind !== 'const';
    }),
  );
  expect(variables.map(({ file }) => file)).toEqual([]);
});

/** Nothing may be added. */
const undocumented = [
  'schema/fields.ts integer',
  'schema/fields.ts isPlainObject',
  'schema/fields.ts number',
  'schema/fields.ts optional',
  'schema/fields.ts required',
  'schema/fields.ts withDefault',
  'mqtt/broker.ts startBroker',
  'mqtt/permissions.ts devicePermissions',
  'mqtt/topics.ts streamTopic',
  'resources/api-key.ts isAccountName',
  'resources/api-key.ts isUserName',
  'db/driver-errors.ts isDuplicate',
];

it('explains every function that it exports', () => {
  const found = sources.flatMap(({ file, text }) =>
    [...text.matchAll(/(.*)\nexport (?:async )?function\*? (\w+)|(.*)\nexport const (\w+) = (?:async )?\(/g)]
      .filter(([, before = '', , beforeConst = '']) => !/\*\/\s*$|^export .*;$/.test(before || beforeConst))
      .map(([, , name, , constant]) => `${file} ${name ?? constant}`),
  );
  expect(found.sort()).toEqual(undocumented.toSorted());
});
