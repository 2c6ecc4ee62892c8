import { createRequire } from 'node:module';
import { TestEnvironment } from 'jest-environment-node';

/** Gives the modules of a test file the loader of the process around them, for compiled-source.js. */
export default class CompiledSourceEnvironment extends TestEnvironment {
  async setup() {
    await super.setup();
    this.global.requireCompiled = createRequire(import.meta.url);
  }
}
