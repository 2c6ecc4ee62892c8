// Run after `npm install`: names the optional packages of other platforms in package-lock.json where the registry at
// hand does not offer them. `npm ci` refuses a lock without them; with them it passes over what is not for its platform.
import { readFileSync, writeFileSync } from 'node:fs';

const file = 'package-lock.json';
const systems = ['android', 'darwin', 'linux', 'win32', 'freebsd', 'openharmony'];
const processors = ['arm64', 'x64', 'arm', 'ppc64', 's390x', 'ia32', 'loong64', 'riscv64'];

const lock = JSON.parse(readFileSync(file, 'utf8'));
for (const [path, { optionalDependencies = {}, dev }] of Object.entries(lock.packages)) {
  for (const [name, version] of Object.entries(optionalDependencies)) {
    const place = `node_modules/${name}`;
    if (lock.packages[place] || lock.packages[`${path}/${place}`]) continue;
    const words = name.split('/').at(-1).split('-');
    const os = systems.find((one) => words.includes(one));
    const cpu = processors.find((one) => words.includes(one));
    if (os === undefined || cpu === undefined) continue;
    const libc = words.some((word) => word.startsWith('musl')) ? 'musl' : 'glibc';
    const ofLibc = os === 'linux' && words.length > 2 && { libc: [libc] };
    lock.packages[place] = { version, cpu: [cpu], ...(dev && { dev }), ...ofLibc, optional: true, os: [os] };
  }
}
lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
