import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, relative } from 'node:path';

const require = createRequire(import.meta.url);

const findCompiled = (path, { rootDir }) => join(rootDir, 'dist', relative(rootDir, path).replace(/\.ts$/, '.js'));

/** Replaces a source by its compiled file, which each worker loads and optimizes once and not again for each test file. */
export default {
  process(_source, path, { config }) {
    const compiled = findCompiled(path, config);
    const names = Object.keys(require(compiled));
    return { code: `export const { ${names.join(', ')} } = requireCompiled(${JSON.stringify(compiled)});` };
  },
  getCacheKey(_source, path, { config }) {
    const compiled = findCompiled(path, config);
    const hash = createHash('sha256').update(compiled);
    for (const file of [compiled, import.meta.filename]) hash.update(readFileSync(file));
    return hash.digest('hex');
  },
};
