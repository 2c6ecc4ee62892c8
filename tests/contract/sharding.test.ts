import { expect, it } from '@jest/globals';
import { collections, deriveIndexes } from '../../src/db/indexes.js';
import { rowsOf } from '../support/sharding.js';

/** Shard keys by collection, empty for collections that cannot have one. */
const keys = new Map(
  rowsOf('collection').map(([name = '', key = '']): [string, string[]] => [
    name,
    key === 'none' ? [] : key.split(', '),
  ]),
);

it('names a shard key or none for every declared collection, and for no other', () => {
  expect([...keys.keys()].sort()).toEqual(collections.map(({ plural }) => plural).sort());
});

it.each(collections.map((listed) => [listed.plural, listed] as const))(
  'has a shard key of %s that begins every unique index, as MongoDB demands',
  (plural, listed) => {
    const key = keys.get(plural) ?? [];
    const indexes = deriveIndexes(listed).map((index) => ({ ...index, paths: Object.keys(index.key) }));
    const unique = indexes.filter((index) => index.unique === true).map(({ paths }) => paths);
    if (key.length === 0) {
      // no field begins them all
      expect(new Set(unique.map(([first]) => first)).size).toBeGreaterThan(1);
      return;
    }
    for (const paths of unique) expect(paths.slice(0, key.length)).toEqual(key);
    const whole = indexes.filter((index) => index.partialFilterExpression === undefined);
    expect(whole.map(({ paths }) => paths.slice(0, key.length).join())).toContain(key.join());
  },
);
