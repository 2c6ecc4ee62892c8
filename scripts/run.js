// Runs an entry point of dist/ in this process and compiles first if the sources have changed since the last build.
// The console is built for the service only, and only if its own sources have changed.
//
//   node scripts/run.js dist/src/cli/keys.js list --account demo
//   node scripts/run.js                                             compiles only (`npm run build`)
//
// Without a compiler, as in an image or after `npm ci --omit=dev`, it runs dist/ as it is.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const consoleSources = join(root, 'src/console');
const service = {
  stampFile: join(root, 'dist/.build-stamp'),
  sources: ['src', 'scripts', 'demo', 'package.json', 'tsconfig.json', 'tsconfig.build.json'],
  excluded: consoleSources,
};
const webConsole = { stampFile: join(root, 'dist/.console-stamp'), sources: ['src/console', 'package-lock.json'] };
const consolePage = join(root, 'dist/src/console/index.html');

const [, , entry, ...args] = process.argv;
const entryPath = entry === undefined ? undefined : resolve(root, entry);

// Read before the compiler starts: a file saved while it runs is compiled next time.
const modified = newestModification(service);
const isBuilt = entryPath === undefined || existsSync(entryPath);
if (modified !== undefined && (modified !== readStamp(service) || !isBuilt)) build(modified);
if (needsConsole()) buildConsole();
if (entryPath !== undefined) await run(entryPath);

/** Returns the newest modification time of all sources in ms, or undefined if there are none to compile. */
function newestModification({ sources, excluded }) {
  if (!existsSync(join(root, 'src'))) return undefined;
  let newest = 0;
  const visit = (path) => {
    if (path === excluded) return;
    const stat = statSync(path, { throwIfNoEntry: false });
    if (stat === undefined) return;
    // the time of a directory covers files that were removed or renamed
    newest = Math.max(newest, stat.mtimeMs);
    if (stat.isDirectory()) for (const name of readdirSync(path)) visit(join(path, name));
  };
  for (const source of sources) visit(join(root, source));
  return String(newest);
}

/** Returns the modification time that the last successful build has recorded. */
function readStamp({ stampFile }) {
  return existsSync(stampFile) ? readFileSync(stampFile, 'utf8') : undefined;
}

function writeStamp({ stampFile }, time) {
  mkdirSync(dirname(stampFile), { recursive: true });
  writeFileSync(stampFile, time);
}

/** Compiles into dist/; exits if that fails. */
function build(time) {
  const compiler = findTool('typescript', 'tsc');
  if (compiler === undefined) {
    if (isBuilt && entryPath !== undefined) return;
    fail(`${entry ?? 'dist/'} cannot be built: typescript is not installed; run npm ci --include=dev`);
  }
  // an incremental build would not write files that were deleted from dist/
  if (!isBuilt) rmSync(join(root, 'dist/.tsbuildinfo'), { force: true });
  runTool(compiler, ['-p', 'tsconfig.build.json']);
  writeStamp(service, time);
}

/** Reports whether this start serves the console: the service's own does, a worker and a tool do not. */
function needsConsole() {
  return entryPath === undefined || (entry === 'dist/src/main.js' && process.env.CONSOLE !== 'off');
}

/** Builds the console if its sources have changed; exits if that fails. Without Vite the service starts with what is built. */
function buildConsole() {
  const time = newestModification(webConsole);
  if (time === undefined || !existsSync(consoleSources)) return;
  if (time === readStamp(webConsole) && existsSync(consolePage)) return;
  const vite = findTool('vite', 'vite');
  if (vite === undefined) {
    if (entryPath !== undefined) return;
    fail('the console cannot be built: vite is not installed; run npm ci --include=dev');
  }
  runTool(vite, ['build', '--config', 'src/console/vite.config.ts']);
  writeStamp(webConsole, time);
}

/** Runs a tool; exits if it fails. Its messages go to standard error: the output is the entry point's. */
function runTool(path, toolArgs) {
  const { status } = spawnSync(process.execPath, [path, ...toolArgs], { cwd: root, stdio: ['ignore', 2, 2] });
  if (status !== 0) process.exit(status ?? 1);
}

/** Finds the script that an installed package runs as `command`. */
function findTool(name, command) {
  try {
    const manifest = createRequire(import.meta.url).resolve(`${name}/package.json`);
    return join(dirname(manifest), JSON.parse(readFileSync(manifest, 'utf8')).bin[command]);
  } catch {
    return undefined;
  }
}

/** Imports the entry point, which sees the same arguments as if Node.js had started it. */
async function run(path) {
  if (!existsSync(path)) fail(`there is no ${path}`);
  process.argv.splice(1, process.argv.length, path, ...args);
  await import(pathToFileURL(path).href);
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}
