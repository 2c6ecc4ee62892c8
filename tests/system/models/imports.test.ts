import { expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { createRandom } from '../../support/random.js';
import type { Api } from '../../support/service.js';

/** An import stores what single creates in the order of its lines store (reference/import.md#lines). */
const ctx = await useTestService();

type Line = Record<string, unknown> & { resource: string };

const parents: Record<string, [field: string, parent: string][]> = {
  project: [],
  service: [['id_project', 'p']],
  group: [['id_service', 's']],
  asset: [['id_group', 'g']],
  model: [],
  device: [
    ['id_group', 'g'],
    ['id_asset', 'a'],
  ],
};
const initials: Record<string, string> = {
  project: 'p',
  service: 's',
  group: 'g',
  asset: 'a',
  model: 'm',
  device: 'd',
};

/** Lines with few names, so that many are taken, and with parents that are often missing. */
function generateLines(seed: number, account: string): Line[] {
  const next = createRandom(seed);
  const random = (below: number) => Math.floor(next() * below);
  const types = Object.keys(parents);
  return Array.from({ length: 120 }, (): Line => {
    const resource = types[random(types.length)] ?? '';
    const choices = parents[resource] ?? [];
    const parent = choices[random(Math.max(choices.length, 1))];
    const texts = ['=1+1', "'quoted", 'a;b,c', 'two\nlines "quoted"', '-', "''", 'ü'];
    return {
      resource,
      name: `${initials[resource]}${random(4)}${random(8) === 0 ? '-2' : ''}`,
      ...(parent && { [parent[0]]: `${parent[1]}${random(4)}@${account}` }),
      ...(resource === 'project' && random(8) > 0 && { id_customer: `c ${random(9)}` }),
      ...(resource === 'device' && { type: 'pump' }),
      ...(resource === 'device' && random(3) === 0 && { lon: random(400) - 200, lat: random(90) }),
      ...(resource === 'device' && random(4) === 0 && { networking: { type: 'wifi', conn_address: '192.0.2.7' } }),
      ...(resource === 'model' && { properties: { range: random(50), text: texts[random(texts.length)] } }),
      ...(random(3) === 0 && { description: texts[random(texts.length)] }),
      ...(random(4) === 0 && { enabled: random(2) === 0 }),
    };
  });
}

/** Writes lines as CSV; texts are protected as an export does it. */
function toCsv(lines: readonly Line[]): string {
  const columns = [
    ...['resource', 'name', 'id_project', 'id_service', 'id_group', 'id_asset', 'id_customer', 'type', 'lon', 'lat'],
    ...['networking.type', 'networking.conn_address', 'properties', 'description', 'enabled'],
  ];
  const cellOf = (value: unknown) => {
    if (value === undefined) return '';
    if (typeof value === 'object') return JSON.stringify(value);
    return typeof value === 'string' && /^[=+\-@']/.test(value) ? `'${value}` : String(value);
  };
  const rows = lines.map((line) => {
    const networking = (line.networking ?? {}) as Record<string, unknown>;
    return columns.map((column) => {
      const [first = '', second] = column.split('.');
      const cell = cellOf(second === undefined ? line[first] : networking[second]);
      return /[;"\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
    });
  });
  return [columns, ...rows].map((row) => `${row.join(';')}\r\n`).join('');
}

/** All objects of an account, with `account` in place of its name. */
async function readAll(api: Api, account: string): Promise<unknown> {
  const plurals = ['projects', 'services', 'groups', 'assets', 'models', 'devices'];
  const lists = await Promise.all(plurals.map(async (plural) => (await api.get(`/${plural}/?sort=id_developer`)).text));
  return JSON.parse(`[${lists.join().replaceAll(`@${account}`, '@account')}]`);
}

/** Code of a line of the import that corresponds to the answer to a single create: taken names are objects that exist. */
function codeOf({ code, details }: { code: number; details: object }): number {
  return code === 4003 && Object.values(details).some((reason) => String(reason).endsWith('is taken')) ? 2007 : code;
}

it.each([1, 2, 3, 4, 5, 6])('NDJSON and CSV, seed %s', async (seed) => {
  const [single, ndjson, csv] = [`single-${seed}`, `ndjson-${seed}`, `csv-${seed}`];
  const api = await ctx.service.client({ account: single });
  const codes: number[] = [];
  for (const { resource, ...body } of generateLines(seed, single)) {
    const answer = (await api.post(`/${resource}s/`, body)).body;
    codes.push(codeOf(answer));
  }
  for (const code of [2001, 2007, 4003]) expect(codes).toContain(code);
  const expected = await readAll(api, single);
  for (const account of [ndjson, csv]) {
    const other = await ctx.service.client({ account });
    const lines = generateLines(seed, account);
    const content = account === csv ? toCsv(lines) : lines;
    const dry = await sendImport(other, content, '?dry_run=1');
    const answer = await sendImport(other, content);
    expect(dry).toEqual(answer);
    expect(answer.lines.map(({ code }) => code)).toEqual(codes);
    expect(await readAll(other, account)).toEqual(expected);
  }
});
