import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

/** The commit of version 0.2.0, the last release. */
export const last_release = '9bcbca2e35e39e9b1f86557574c28701ad7fea33';

/** Reports whether the history of this clone has a commit. */
export function hasCommit(commit: string): boolean {
  try {
    execFileSync('git', ['cat-file', '-e', `${commit}^{commit}`], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/**
 * Builds an earlier version with the packages of this one, once for all runs of this machine: what its service alone needs,
 * aedes, is a package for development. Its console is left out.
 * @returns its folder @throws Error if git, tar or its compiler fails
 */
export async function buildEarlierVersion(commit: string): Promise<string> {
  const folder = join(tmpdir(), `device-platform-${commit}`);
  if (existsSync(folder)) {
    await linkPackages(folder);
    return folder;
  }
  const building = `${folder}.${process.pid}`;
  await mkdir(building);
  try {
    const archive = execFileSync('git', ['archive', commit], { maxBuffer: 1024 ** 3 });
    execFileSync('tar', ['-x', '-C', building], { input: archive });
    await linkPackages(building);
    const compiler = resolve('node_modules/typescript/bin/tsc');
    // its types were checked with the packages that it had
    const args = [compiler, '-p', 'tsconfig.build.json', '--noCheck'];
    execFileSync(process.execPath, args, { cwd: building, stdio: 'pipe' });
    await rename(building, folder);
  } finally {
    await rm(building, { recursive: true, force: true });
  }
  return folder;
}

/** Links the packages of this checkout; the one that has built the version may be gone. */
async function linkPackages(folder: string): Promise<void> {
  const link = join(folder, 'node_modules');
  await rm(link, { force: true });
  await symlink(resolve('node_modules'), link);
}
