import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

const folder = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Puts a compressed form beside each file, so that the service does not compress while it answers. */
const compressFiles: Plugin = {
  name: 'compress-files',
  // not `generateBundle`: Vite completes the imports of chunks after that of plugins
  writeBundle({ dir = '' }, bundle) {
    for (const { fileName } of Object.values(bundle)) {
      if (!/^files\/.*\.(?:css|js|json|svg)$/.test(fileName)) continue;
      const content = readFileSync(join(dir, fileName));
      writeFileSync(join(dir, `${fileName}.br`), brotliCompressSync(content));
      writeFileSync(join(dir, `${fileName}.gz`), gzipSync(content, { level: 9 }));
    }
  },
};

/** `scripts/run.js` builds into the folder from which `src/http/console.ts` serves. */
export default defineConfig({
  root: folder('.'),
  // chunks find each other beside themselves, wherever a proxy mounts the service
  base: './',
  clearScreen: false,
  logLevel: 'warn',
  plugins: [compressFiles],
  build: {
    outDir: folder('../../dist/src/console'),
    // not `assets`, which is a list of the console
    assetsDir: 'files',
    emptyOutDir: true,
    target: 'es2023',
    // an inlined file would be a data URL, which the policy allows for images only
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      // the first view is one file, as each costs a kilobyte of headers
      output: { codeSplitting: { groups: [{ name: 'base', tags: ['$initial'] }] } },
      // libraries mark their modules for React servers; a slow machine is no fault of the sources
      onLog: (level, log, print) => {
        if (log.code !== 'MODULE_LEVEL_DIRECTIVE' && log.code !== 'PLUGIN_TIMINGS') print(level, log);
      },
    },
  },
});
