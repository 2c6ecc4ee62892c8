import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const folder = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** `scripts/run.js` builds into the folder from which `src/http/console.ts` serves. */
export default defineConfig({
  root: folder('.'),
  // chunks find each other beside themselves, wherever a proxy mounts the service
  base: './',
  clearScreen: false,
  logLevel: 'warn',
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
      // libraries mark their modules for React servers; a slow machine is no fault of the sources
      onLog: (level, log, print) => {
        if (log.code !== 'MODULE_LEVEL_DIRECTIVE' && log.code !== 'PLUGIN_TIMINGS') print(level, log);
      },
    },
  },
});
