import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { data_version, version } from '../../src/lib/version.js';
import { migrations } from '../../src/service/migrations.js';

const read = (file: string) => readFileSync(file, 'utf8');

it('names one version everywhere', () => {
  const lock = JSON.parse(read('package-lock.json'));
  const named = {
    'package.json': JSON.parse(read('package.json')).version,
    'package-lock.json': lock.version,
    'its first package': lock.packages[''].version,
    'src/lib/version.ts': version,
    'docs/reference': /interface of version (\S+):/.exec(read('docs/reference/README.md'))?.[1],
    'CHANGELOG.md': /^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$/m.exec(read('CHANGELOG.md'))?.[1],
  };
  expect(named).toEqual(Object.fromEntries(Object.keys(named).map((place) => [place, version])));
});

it('has a new version of the data with each migration', () => {
  expect(data_version).toBe(migrations.length);
});

it('has a changelog in the form of Keep a Changelog, newest version first', () => {
  const headings = [...read('CHANGELOG.md').matchAll(/^(##+) (.*)$/gm)].map(([, level, text]) => [level, text]);
  const versions = headings.filter(([level]) => level === '##').map(([, text]) => text?.split(' - ')[0]);
  expect(versions).toContain('[0.1.0]');
  const byAge = versions.toSorted((one = '', other = '') => other.localeCompare(one, 'en', { numeric: true }));
  expect(versions).toEqual(byAge);
  for (const [, text] of headings.filter(([level]) => level === '###'))
    expect(['Added', 'Changed', 'Deprecated', 'Removed', 'Fixed', 'Security']).toContain(text);
});
