import { copyFile, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { delimiter, join, resolve } from 'node:path';
import { installNpmPackages, installPythonPackages, run, type Toolbox } from './toolbox.js';

/** A generator with default settings, and the program that uses the generated client. */
export interface Target {
  name: string;
  /** Installs, generates, compiles and runs. @throws StageError if one of these fails */
  check(toolbox: Toolbox): Promise<void>;
}

const npm_packages = {
  '@openapitools/openapi-generator-cli': '2.41.0',
  '@types/node': '20.19.43',
  'openapi-fetch': '0.17.0',
  'openapi-typescript': '7.13.0',
  typescript: '5.9.3',
};
/** The generator that the npm package fetches from Maven Central. */
const openapi_generator_version = '7.25.0';
const python_generator = 'openapi-python-client==0.29.1';
const classpath_goal = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath';

const roundTripOf = (file: string) => resolve('scripts/clients/round-trips', file);

async function checkTypeScript({ cache, folder, document, service }: Toolbox): Promise<void> {
  const packages = join(await installNpmPackages(cache, npm_packages), 'node_modules');
  const program = (name: string) => join(packages, '.bin', name);
  await run('generate', [program('openapi-typescript'), document, '-o', 'schema.d.ts'], { cwd: folder });
  await symlink(packages, join(folder, 'node_modules'));
  await writeFile(join(folder, 'package.json'), '{"type": "module"}');
  await copyFile(roundTripOf('openapi-fetch.ts'), join(folder, 'round-trip.ts'));
  const options = ['--strict', '--target', 'es2022', '--module', 'nodenext', '--types', 'node', '--outDir', 'out'];
  await run('compile', [program('tsc'), ...options, 'round-trip.ts'], { cwd: folder });
  await run('round trip', [process.execPath, 'out/round-trip.js'], { cwd: folder, env: service });
}

/** Generates a client with OpenAPI Generator. */
async function runOpenApiGenerator({ cache, folder, document }: Toolbox, ...options: string[]): Promise<void> {
  const cwd = await installNpmPackages(cache, npm_packages);
  const settings = { 'generator-cli': { version: openapi_generator_version } };
  await writeFile(join(cwd, 'openapitools.json'), JSON.stringify(settings));
  const program = join(cwd, 'node_modules/.bin/openapi-generator-cli');
  await run('install', ['java', '-version'], { cwd });
  // fetches the generator
  await run('install', [program, 'version'], { cwd });
  await run('generate', [program, 'generate', '-i', document, '-o', folder, ...options], { cwd });
}

async function checkGeneratedPython(toolbox: Toolbox): Promise<void> {
  const { cache, folder, service } = toolbox;
  await runOpenApiGenerator(toolbox, '-g', 'python');
  const requirements = await readFile(join(folder, 'requirements.txt'), 'utf8');
  const python = join(await installPythonPackages(cache, 'openapi-generator-python', requirements), 'python');
  await run('compile', [python, '-m', 'compileall', '-q', 'openapi_client'], { cwd: folder });
  const env = { ...service, PYTHONPATH: folder };
  await run('round trip', [python, roundTripOf('openapi-generator.py')], { cwd: folder, env });
}

async function checkJava(toolbox: Toolbox): Promise<void> {
  const { cache, folder, service } = toolbox;
  await runOpenApiGenerator(toolbox, '-g', 'java', '--library', 'native');
  await copyFile(roundTripOf('RoundTrip.java'), join(folder, 'src/main/java/RoundTrip.java'));
  const maven = ['mvn', '--quiet', '--batch-mode', `-Dmaven.repo.local=${join(cache, 'maven')}`] as const;
  await run('install', [...maven, classpath_goal, '-Dmdep.outputFile=classpath'], { cwd: folder });
  await run('compile', [...maven, 'compile'], { cwd: folder });
  const classpath = ['target/classes', (await readFile(join(folder, 'classpath'), 'utf8')).trim()].join(delimiter);
  await run('round trip', ['java', '-cp', classpath, 'RoundTrip'], { cwd: folder, env: service });
}

async function checkGo(toolbox: Toolbox): Promise<void> {
  const { cache, folder, service } = toolbox;
  const env = { GOMODCACHE: join(cache, 'go') };
  await run('install', ['go', 'version'], { cwd: folder });
  await runOpenApiGenerator(toolbox, '-g', 'go');
  await mkdir(join(folder, 'round-trip'));
  await copyFile(roundTripOf('round-trip.go'), join(folder, 'round-trip/main.go'));
  await run('install', ['go', 'mod', 'tidy'], { cwd: folder, env });
  await run('compile', ['go', 'build', '-o', 'program', './round-trip'], { cwd: folder, env });
  await run('round trip', [join(folder, 'program')], { cwd: folder, env: service });
}

async function checkPythonClient({ cache, folder, document, service }: Toolbox): Promise<void> {
  const programs = await installPythonPackages(cache, 'openapi-python-client', python_generator);
  // as in an activated environment: the generator calls ruff to format its output
  const PATH = [programs, process.env.PATH].join(delimiter);
  // it knows neither type of an import
  const content_type_overrides = Object.fromEntries(
    ['application/x-ndjson', 'text/csv'].map((type) => [type, 'application/octet-stream']),
  );
  await writeFile(join(folder, 'config.json'), JSON.stringify({ content_type_overrides }));
  const command = ['openapi-python-client', 'generate', '--path', document, '--output-path', 'client'] as const;
  const options = ['--config', 'config.json', '--fail-on-warning'];
  await run('generate', [...command, ...options], { cwd: folder, env: { PATH } });
  const python = join(programs, 'python');
  await run('compile', [python, '-m', 'compileall', '-q', 'client'], { cwd: folder });
  const env = { ...service, PYTHONPATH: join(folder, 'client') };
  await run('round trip', [python, roundTripOf('openapi-python-client.py')], { cwd: folder, env });
}

export const targets: readonly Target[] = [
  { name: 'openapi-typescript', check: checkTypeScript },
  { name: 'openapi-generator-python', check: checkGeneratedPython },
  { name: 'openapi-generator-java', check: checkJava },
  { name: 'openapi-generator-go', check: checkGo },
  { name: 'openapi-python-client', check: checkPythonClient },
];
