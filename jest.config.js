const root = import.meta.dirname.replaceAll(/[^\w/]/g, '\\$&');

export default {
  testEnvironment: '<rootDir>/tests/support/environment.js',
  testMatch: ['<rootDir>/tests/**/*.test.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    [`^${root}/src/(?!console/).*\\.ts$`]: '<rootDir>/tests/support/compiled-source.js',
    '\\.ts$': ['@swc/jest', { jsc: { target: 'es2022', parser: { syntax: 'typescript' } }, module: { type: 'es6' } }],
  },
  moduleNameMapper: {
    '^(\\.{1,2}/.*)\\.js$': '$1',
    '^(mongoose|supertest)$': '<rootDir>/tests/support/$1.js',
  },
  globalSetup: '<rootDir>/tests/support/global-setup.js',
  globalTeardown: '<rootDir>/tests/support/global-teardown.js',
  testSequencer: '<rootDir>/tests/support/sequencer.js',
  // ends what hangs; how long something takes is for benchmarks
  testTimeout: 300_000,
  // many tests wait for processes of their own, so that three keep two processors busy
  maxWorkers: 3,
  workerIdleMemoryLimit: '1GB',
};
