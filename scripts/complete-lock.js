// Run after `npm install`: adds the optional packages of other platforms to package-lock.json if the registry in use does
// not offer them. `npm ci` rejects a lock without them, and skips those that are not for its platform.
import { readFileSync, writeFileSync } from 'node:fs';

const file = 'package-lock.json';
const operatingSystems = ['android', 'darwin', 'linux', 'win32', 'freebsd', 'openharmony'];
const architectures = ['arm64', 'x64', 'arm', 'ppc64', 's390x', 'ia32', 'loong64', 'riscv64'];

const lock = JSON.parse(readFileSync(file, 'utf8'));
for (const [path, { optionalDependencies = {}, dev }] of Object.entries(lock.packages)) {
  for (const [name, version] of Object.entries(optionalDependencies)) {
    const location = `node_modules/${name}`;
    if (lock.packages[location] || lock.packages[`${path}/${location}`]) continue;
    const words = name.split('/').at(-1).split('-');
    const os = operatingSystems.find((candidate) => words.includes(candidate));
    const cpu = architectures.find((candidate) => words.includes(candidate));
    if (os === undefined || cpu === undefined) continue;
    const libc = words.some((word) => word.startsWith('musl')) ? 'musl' : 'glibc';
    const libcField = os === 'linux' && words.length > 2 && { libc: [libc] };
    lock.packages[location] = { version, cpu: [cpu], ...(dev && { dev }), ...libcField, optional: true, os: [os] };
  }
}
lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
