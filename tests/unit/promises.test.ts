import { expect, it } from '@jest/globals';
import { findUnhandledPromises } from '../support/promises.js';

const fixture = 'tests/unit/fixtures/promises.ts';

it('gives every promise of the service a handler when it starts (src/lib/promises.ts)', () => {
  const found = findUnhandledPromises((file) => file === fixture || /^src\/(?!console\/)/.test(file));
  const lines = Array.from({ length: 15 }, (_, index) => `${fixture}:${7 + index}`);
  expect(found.map((place) => place.replace(/ .*/, ''))).toEqual(lines);
});
