import { afterEach, beforeEach } from '@jest/globals';
import type { mongo } from 'mongoose';
import { openSandbox, type Sandbox } from './process.js';

interface DatabaseSandbox {
  sandbox: Sandbox;
  /** A database of its own on the `mongod` of all tests. */
  db: mongo.Db;
  /** Variables of a service on that database. */
  env: { MONGODB_URI: string; SECRET_KEY: string; BOOTSTRAP_API_KEY: string };
}

/** Opens a sandbox with a database before each test of a file. @param name distinguishes it from those of other files */
export function useDatabaseSandbox(name: string): DatabaseSandbox {
  const ctx = {} as DatabaseSandbox;
  beforeEach(async () => {
    const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
    uri.pathname = `/test-${name}-${process.pid}-${Date.now()}`;
    ctx.env = { MONGODB_URI: uri.href, SECRET_KEY: 'only for this test', BOOTSTRAP_API_KEY: 'only-for-this-test' };
    ctx.sandbox = await openSandbox();
    ctx.db = ctx.sandbox.database(uri.href);
  });
  afterEach(async () => {
    await ctx.db.dropDatabase();
    await ctx.sandbox.close();
  });
  return ctx;
}
