import { AsyncLocalStorage } from 'node:async_hooks';
import { createRequire } from 'node:module';
import { TestEnvironment } from 'jest-environment-node';

// In it jest keeps which of several concurrent tests runs. No test here is concurrent, and once it is used, Node 20 calls hooks
// for each promise of the process: 8 % of the time of tests that send requests.
AsyncLocalStorage.prototype.run = (_store, callback, ...args) => callback(...args);

/** Gives the modules of a test file the loader of the process around them, for compiled-source.js, and its rejections. */
export default class CompiledSourceEnvironment extends TestEnvironment {
  async setup() {
    await super.setup();
    this.global.requireCompiled = createRequire(import.meta.url);
    this.global.onUnhandledRejection = (listener) => {
      this.listener = listener;
      process.on('unhandledRejection', listener);
    };
  }
  async teardown() {
    if (this.listener !== undefined) process.off('unhandledRejection', this.listener);
    await super.teardown();
  }
}
