// Runs an entry point of dist/ in this process and compiles first if the sources have changed since the last build.
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
const stampFile = join(root, 'dist/.build-stamp');
const sources = ['src', 'scripts', 'tests/system', 'package.json', 'tsconfig.json', 'tsconfig.build.json'];

const [, , entry, ...args] = process.argv;
const entryPath = entry === undefined ? undefined : resolve(root, entry);

// Read before the compiler starts: a file saved while it runs is compiled next time.
const modified = newestModification();
const stamp = readStamp();
const isBuilt = entryPath === undefined || existsSync(entryPath);
if (modified !== undefined && (modified !== stamp || !isBuilt)) build(modified);
if (entryPath !== undefined) await run(entryPath);

/** Returns the newest modification time of all sources in ms, or undefined if there are none to compile. */
function newestModification() {
  if (!existsSync(join(root, 'src'))) return undefined;
  let newest = 0;
  const visit = (path) => {
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
function readStamp() {
  return existsSync(stampFile) ? readFileSync(stampFile, 'utf8') : undefined;
}

/** Compiles into dist/; exits if that fails. The compiler's messages go to standard error: the output is the tool's. */
function build(time) {
  const compiler = findCompiler();
  if (compiler === undefined) {
    if (isBuilt && entryPath !== undefined) return;
    fail(`${entry ?? 'dist/'} cannot be built: typescript is not installed; run npm ci --include=dev`);
  }
  // an incremental build would not write files that were deleted from dist/
  if (!isBuilt) rmSync(join(root, 'dist/.tsbuildinfo'), { force: true });
  const { status } = spawnSync(process.execPath, [compiler, '-p', 'tsconfig.build.json'], {
    cwd: root,
    stdio: ['ignore', 2, 2],
  });
  if (status !== 0) process.exit(status ?? 1);
  mkdirSync(dirname(stampFile), { recursive: true });
  writeFileSync(stampFile, time);
}

function findCompiler() {
  try {
    const manifest = createRequire(import.meta.url).resolve('typescript/package.json');
    return join(dirname(manifest), JSON.parse(readFileSync(manifest, 'utf8')).bin.tsc);
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
