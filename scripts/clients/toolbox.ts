import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

/** A stage of a target; if `install` fails, the target counts as not installed. */
export type Stage = 'install' | 'generate' | 'compile' | 'round trip';

/** Tools and settings of a target. */
export interface Toolbox {
  /** Folder of the generators and packages, which later runs use again. */
  cache: string;
  /** Empty folder for the generated client. */
  folder: string;
  /** File with the OpenAPI document. */
  document: string;
  /** Address of the service and a key of scope `write` for an account of the target's own. */
  service: { DEVICE_PLATFORM_URL: string; API_KEY: string };
}

/** The stage in which a command failed, with the end of its output. */
export class StageError extends Error {
  constructor(
    readonly stage: Stage,
    message: string,
  ) {
    super(message);
  }
}

const command_timeout_ms = 600_000;
const max_output_bytes = 64 * 1024 ** 2;
const max_message_lines = 20;

/** This process runs under npm, whose settings must not reach other package managers. */
function createEnvironment(): NodeJS.ProcessEnv {
  const isForeign = (name: string) => !/^npm_|^NODE_OPTIONS$|^INIT_CWD$/i.test(name);
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => isForeign(name)));
}

/** Runs a command in a folder and returns its output. @throws StageError if it fails or is missing */
export function run(
  stage: Stage,
  command: readonly [string, ...string[]],
  { cwd, env = {} }: { cwd: string; env?: NodeJS.ProcessEnv },
): Promise<string> {
  const [program, ...args] = command;
  const options = {
    cwd,
    env: { ...createEnvironment(), PWD: cwd, ...env },
    timeout: command_timeout_ms,
    maxBuffer: max_output_bytes,
  };
  return new Promise((resolve, reject) => {
    execFile(program, args, options, (error, output, messages) => {
      if (error === null) return resolve(output);
      const lines = stripVTControlCharacters(`${output}${messages}`)
        .split('\n')
        .filter((line) => line.trim() !== '');
      const reason =
        'code' in error && error.code === 'ENOENT' ? `${program} is missing` : lines.at(-1) || error.message;
      const isShort = stage === 'install' || lines.length === 1;
      reject(new StageError(stage, isShort ? reason : `\n${lines.slice(-max_message_lines).join('\n')}`));
    });
  });
}

/** Installs npm packages of exactly these versions, unless they are there; returns their folder. */
export async function installNpmPackages(cache: string, versions: Readonly<Record<string, string>>): Promise<string> {
  const folder = join(cache, 'npm');
  await installOnce(folder, JSON.stringify({ private: true, dependencies: versions }, null, 2), async (manifest) => {
    await writeFile(join(folder, 'package.json'), manifest);
    const options = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
    await run('install', ['npm', 'install', ...options], { cwd: folder });
  });
  return folder;
}

/** Creates a virtual environment with these requirements, unless it is there; returns its folder of programs. */
export async function installPythonPackages(cache: string, name: string, requirements: string): Promise<string> {
  const folder = join(cache, name);
  const programs = join(folder, 'bin');
  await installOnce(folder, requirements, async () => {
    await run('install', ['python3', '-m', 'venv', '--clear', folder], { cwd: cache });
    await writeFile(join(folder, 'requirements.txt'), requirements);
    const options = ['--quiet', '--disable-pip-version-check'];
    await run('install', [join(programs, 'pip'), 'install', ...options, '-r', 'requirements.txt'], { cwd: folder });
  });
  return programs;
}

/** Calls `install` unless it has succeeded in this folder with the same description before. */
async function installOnce(folder: string, description: string, install: (text: string) => Promise<void>) {
  const stamp = join(folder, '.installed');
  if (existsSync(stamp) && (await readFile(stamp, 'utf8')) === description) return;
  await mkdir(folder, { recursive: true });
  await install(description);
  await writeFile(stamp, description);
}
