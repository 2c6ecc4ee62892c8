import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { inapplicable, sections } from '../support/mqtt5-statements.js';

const files = [
  'tests/unit/mqtt-connection.test.ts',
  ...readdirSync('tests/mqtt').map((file) => join('tests/mqtt', file)),
];

/** The statements that tests name outside of comments. */
const tested = new Set(
  files.flatMap((file) => {
    const code = readFileSync(file, 'utf8').replaceAll(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '');
    return code.match(/\bMQTT-\d+(?:\.\d+)+-\d+/g) ?? [];
  }),
);

it('each normative statement of MQTT 5 is tested by its number, or said not to apply', () => {
  const all = Object.entries(sections).flatMap(([section, [first, last]]) =>
    Array.from({ length: last - first + 1 }, (_, index) => `MQTT-${section}-${first + index}`),
  );
  const listed = Object.keys(inapplicable);
  expect({
    count: all.length,
    untested: all.filter((name) => !tested.has(name) && !listed.includes(name)),
    both: listed.filter((name) => tested.has(name)),
    unknown: [...tested, ...listed].filter((name) => !all.includes(name)),
  }).toEqual({ count: 251, untested: [], both: [], unknown: [] });
});
