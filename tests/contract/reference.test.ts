import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { listOperations } from '../../scripts/docs.js';
import { failures } from '../../src/errors.js';
import { providers } from '../../src/file-storage/providers/providers.js';
import { device, file, mqttcredentials, stream } from '../../src/resources/index.js';
import { max_data_bytes } from '../../src/resources/stream.js';
import type { FieldType } from '../../src/schema/fields.js';
import { paging } from '../../src/schema/list-parameters.js';
import { body_limit_bytes, type Operation } from '../../src/schema/operation.js';

const folder = 'docs/reference';
const chapters = readdirSync(folder).filter((file) => file.endsWith('.md'));

/** A Markdown file as lines outside of code blocks. */
function proseOf(file: string): string[] {
  let fenced = false;
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => {
      const fence = /^\s*```/.test(line);
      if (fence) fenced = !fenced;
      return !fenced && !fence;
    });
}

/** The anchor that GitHub gives a heading. */
function anchorOf(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
    .replaceAll(' ', '-');
}

function headingsOf(file: string): string[] {
  return proseOf(file).flatMap((line) => /^#{1,6} (.*)/.exec(line)?.[1] ?? []);
}

/** The slugs that code cites: anchors of the headings without their numbers. */
function citableOf(file: string): string[] {
  return headingsOf(file).map((heading) => anchorOf(heading.replace(/^[\d.]+ /, '')));
}

const operations = await listOperations();

function operationAt(method: string, path: string): (typeof operations)[number] {
  const found = operations.find((operation) => operation.method === method && operation.path === path);
  if (found === undefined) throw new Error(`no operation ${method} ${path}`);
  return found;
}

it('advises clients on every code of an error', () => {
  const advice = proseOf(join(folder, 'errors.md')).map((line) => /^- ([\d, ]+):/.exec(line)?.[1]);
  const advised = advice.flatMap((codes) => codes?.split(', ') ?? []);
  expect(advised.map(Number).sort()).toEqual([...new Set(Object.values(failures).map(({ code }) => code))].sort());
});

it('describes the filters by an object above, and what sorts beside fields', () => {
  const text = readFileSync(join(folder, 'lists.md'), 'utf8');
  for (const name of ['id_project', 'id_service', 'id_group', 'id_asset']) expect(text).toContain(`\`${name}\``);
  for (const sort of ['device', 'severity', 'latest.PATH']) expect(text).toContain(`\`sort=${sort}\``);
});

it('has the fields of a listed file', () => {
  const [, listing = ''] = readFileSync(join(folder, 'file-storage.md'), 'utf8').split(/## [\d.]+ Listing\n/);
  const names = [...listing.matchAll(/^- `(\w+)`: /gm)].map(([, name]) => name);
  expect(names).toEqual(expect.arrayContaining(Object.keys(file.fields)));
});

it('has the settings of every provider in the body that links a storage', () => {
  const { body } = operationAt('put', '/external/{provider}/user/{username}/');
  const settings = providers.flatMap(({ fields }) => Object.keys(fields));
  expect(Object.keys(body?.schema?.properties ?? {}).sort()).toEqual(settings.sort());
});

describe('the limits', () => {
  /** Values by limit, of items `- LIMIT: VALUE; MORE`. */
  const rows = new Map(
    proseOf(join(folder, 'limits.md')).flatMap((line): [string, string][] => {
      const [, limit = '', value = ''] = /^- (.*): ([^;]*)/.exec(line) ?? [];
      return limit === '' ? [] : [[limit, value]];
    }),
  );
  const sources = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));

  /** The values of all constants of a name, wherever they are: most are of no use outside their file. */
  function constants(name: string): number[] {
    const declaration = new RegExp(`^(?:export )?const ${name} = ([\\d_ *]+);$`, 'gm');
    return sources.flatMap((file) =>
      [...readFileSync(join('src', file), 'utf8').matchAll(declaration)].map(([, product = '']) =>
        product.split('*').reduce((value, factor) => value * Number(factor.replaceAll('_', '')), 1),
      ),
    );
  }

  it.each([
    ['streams in one request', 'max_entries', /^1 to (\d+)$/, 1],
    ['API key', 'max_key_length', /^(\d+) characters$/, 1],
    ['`Accept` header', 'max_header_length', /^(\d+) characters$/, 1],
    ['requests in flight, shared', 'max_in_flight', /^(\d+)$/, 1],
    ['request bodies in work, shared', 'max_body_bytes', /^(\d+) MiB$/, 1024 ** 2],
    ['live connections, shared', 'max_live_connections', /^(\d+)$/, 1],
    ['streams that are not answered yet, shared', 'max_unanswered', /^(\d+)$/, 1],
    ['live connections of an account', 'max_live_connections_per_account', /^(\d+)$/, 1],
    ['what the reader of a live feed is behind', 'max_feed_entries', /^(\d+) entries,/, 1],
    ['what the reader of a live feed is behind', 'max_feed_bytes', /, (\d+) MiB$/, 1024 ** 2],
    ['requests in progress on one connection', 'max_open_per_connection', /^(\d+)$/, 1],
    ['connection without progress', 'stalled_connection_ms', /^(\d+) s to 40 s$/, 1000],
    ['time to finish on SIGTERM', 'drain_limit_ms', /^(\d+) s$/, 1000],
    ['revoked key in another process', 'revocation_limit_s', /^(\d+) s$/, 1],
    ['MQTT connections', 'max_connections', /^(\d+)$/, 1],
    ['MQTT packet', 'packet_limit_bytes', /^(\d+) KiB$/, 1024],
    ['time for a CONNECT', 'connect_limit_ms', /^(\d+) s$/, 1000],
    ['MQTT client id', 'max_client_id_length', /^(\d+) characters$/, 1],
    ['filter of a subscription', 'max_filter_bytes', /^(\d+) bytes,/, 1],
    ['levels of a topic', 'max_levels', /^(\d+)$/, 1],
    ['subscriptions of a client', 'max_subscriptions', /^(\d+)$/, 1],
    ['topics of a device', 'max_slots', /^(\d+)$/, 1],
    ['lasting sessions of a device or a key', 'max_offline_sessions', /^(\d+)$/, 1],
    ['queued messages of a session', 'max_queued', /^(\d+),/, 1],
    ['queued messages of a session', 'max_queued_bytes', /, (\d+) MiB$/, 1024 ** 2],
    ['retained messages of an account', 'max_retained', /^(\d+),/, 1],
    ['retained messages of an account', 'max_retained_bytes', /, (\d+) MiB$/, 1024 ** 2],
    ['`data` of a command or of its answer', 'max_payload_bytes', /^(\d+) KiB$/, 1024],
    ['desired states for a wildcard subscription', 'max_desired', /^(\d+)$/, 1],
    ['open commands of a device', 'max_slots', /^(\d+)$/, 1],
    ['`desired` or `reported` of a device', 'max_side_bytes', /^(\d+) KiB$/, 1024],
    ['webhooks of an account', 'max_slots', /^(\d+)$/, 1],
    ['alarm rules of an account', 'max_rules', /^(\d+)$/, 1],
    ['`types` of a webhook', 'max_selectors', /^1 to (\d+)$/, 1],
    ['time for the receiver of an event', 'attempt_timeout_ms', /^(\d+) s$/, 1000],
    ['time for the receiver of a test', 'receiver_timeout_ms', /^(\d+) s$/, 1000],
    ['tests and retries of webhooks in progress, shared', 'max_concurrent_tests', /^(\d+)$/, 1],
    ['answer of a receiver that is read', 'max_answer_bytes', /^(\d+) KiB$/, 1024],
    ['attempts in the list of deliveries', 'max_deliveries', /^(\d+)$/, 1],
    ['webhook without one success', 'disabled_after_s', /^(\d+) days$/, 86_400],
    ['files in a listing', 'max_files', /^(\d+)$/, 1],
    ['answer of a storage provider', 'max_provider_bytes', /^(\d+) MiB$/, 1024 ** 2],
    ['time for a storage provider', 'provider_timeout_ms', /^(\d+) s$/, 1000],
    ['listings and linkings in progress, shared', 'max_concurrent_requests', /^(\d+)$/, 1],
    ['downloads in progress, shared', 'max_concurrent_downloads', /^(\d+)$/, 1],
    ['validity of a file link', 'link_ttl_s', /^(\d+) s$/, 1],
  ])('of %s is that of the code', (limit, name, form, unit) => {
    expect(constants(name)).toContain(Number(form.exec(rows.get(limit) ?? '')?.[1]) * unit);
  });

  const maxInFilter = (param: string) =>
    device.filters.find(({ params }) => param in params)?.params[param]?.querySchema?.maxLength;

  it.each([
    ['identifier in a body or path', device.fields.id_group?.type.schema.maxLength],
    ['identifier in a filter', maxInFilter('id_group')],
    ['`id_developer` of a resource as a filter', maxInFilter('id_developer')],
  ])('of %s is that of the declaration', (limit, max) => {
    expect(rows.get(limit)).toBe(`${max} characters`);
  });

  it('of pages, passwords and bodies are those of the declarations', () => {
    const { minLength, maxLength } = mqttcredentials.fields.password?.type.schema ?? {};
    const { minimum, maximum } = paging.max.schema;
    const limitOf = (body: Operation['body']) => body && (body.limit_bytes ?? body_limit_bytes) / 1024 ** 2;
    const mebibytes = (method: string, path: string) => limitOf(operationAt(method, path).body);
    expect(Object.fromEntries(rows)).toMatchObject({
      'MQTT `password`': `${minLength} to ${maxLength} characters`,
      'objects on a page': `${minimum} to ${maximum}`,
      body: `${mebibytes('post', '/devices/')} MiB`,
      'body with a configuration file': `${mebibytes('post', '/devices/{device_id_developer}/deviceconfigs/')} MiB`,
    });
    for (const { body } of operations) expect([undefined, 1, 16]).toContain(limitOf(body));
  });

  it('of free-form objects are those of the declarations', () => {
    const types = [device.fields.properties, stream.fields.data].map((field) => field?.type as FieldType);
    const page = readFileSync(join(folder, 'identifiers.md'), 'utf8');
    const expectRow = (rule: string, cells: readonly unknown[]) =>
      expect(page).toContain(`| ${[rule, ...cells].join(' | ')} |`);
    const maxKey = (type: FieldType) => (type.schema.propertyNames as FieldType['schema'] | undefined)?.maxLength;
    expectRow(
      'keys of the outermost object',
      types.map(({ schema }) => schema.maxProperties),
    );
    expectRow('characters of such a key', types.map(maxKey));
    expectRow('levels of nesting, with the object itself', types.map(levelsOf));
    expectRow('size as compact JSON in UTF-8', ['that of the body', `${max_data_bytes / 1024} KiB`]);
  });

  function isTaken({ body }: FieldType, value: unknown): boolean {
    const faults = {};
    body(value, 'value', faults);
    return Object.keys(faults).length === 0;
  }

  /** The deepest nesting that a kind accepts. */
  function levelsOf(kind: FieldType): number {
    const nested = (levels: number): object => (levels === 1 ? {} : { a: nested(levels - 1) });
    for (let levels = 1; levels < 100; levels++) if (!isTaken(kind, nested(levels + 1))) return levels;
    return Number.NaN;
  }
});

describe('headings', () => {
  it.each(chapters)('of %s are numbered in order, and each is there once', (file) => {
    const headings = headingsOf(join(folder, file));
    if (file !== 'README.md') {
      const chapter = Number.parseInt(headings[0] ?? '', 10);
      const numbers = headings.map((heading) => heading.split(' ')[0]);
      expect(numbers).toEqual([`${chapter}`, ...headings.slice(1).map((_, at) => `${chapter}.${at + 1}`)]);
      expect(readFileSync(join(folder, 'README.md'), 'utf8')).toContain(`[${headings[0]}](${file})`);
    }
    expect(citableOf(join(folder, file))).toHaveLength(new Set(citableOf(join(folder, file))).size);
  });
});

const sourceFiles = ['src', 'scripts', 'tests'].flatMap((top) =>
  readdirSync(top, { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.(?:ts|js|py|sh|toml)$/.test(file))
    .map((file) => join(top, file)),
);

it('has what the code cites', () => {
  const broken = sourceFiles.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/\breference\/([\w-]+\.md)(?:#([\w-]+))?/g)]
      .filter(([, chapter = '', slug]) => {
        const cited = join(folder, chapter);
        return !existsSync(cited) || (slug !== undefined && !citableOf(cited).includes(slug));
      })
      .map(([citation]) => `${file}: ${citation}`),
  );
  expect(broken).toEqual([]);
});

const pages = [
  'README.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  'SECURITY.md',
  'examples/README.md',
  ...readdirSync('docs', { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md'))
    .map((file) => join('docs', file)),
];

it.each(pages)('%s links to what is there', (page) => {
  const broken = proseOf(page)
    .flatMap((line) => [...line.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target))
    .filter((target) => !/^[a-z]+:/.test(target))
    .filter((target) => {
      const [path = '', anchor] = target.split('#');
      const file = path === '' ? page : normalize(join(dirname(page), path));
      if (!existsSync(file)) return true;
      return anchor !== undefined && !(statSync(file).isFile() && headingsOf(file).map(anchorOf).includes(anchor));
    });
  expect(broken).toEqual([]);
});

it.each(pages)('%s names files that exist', (page) => {
  const named = proseOf(page).flatMap((line) => [...line.matchAll(/`((?:src|scripts|tests|docs)\/[\w./-]*[\w/])`/g)]);
  expect(named.map(([, path = '']) => path).filter((path) => !existsSync(path))).toEqual([]);
});

describe('decision records', () => {
  const decisions = readdirSync('docs/decisions').sort();

  it('are numbered without gaps, each in the same form', () => {
    expect(decisions.map((file) => Number(file.slice(0, 4)))).toEqual(decisions.map((_, at) => at + 1));
    for (const file of decisions) {
      const text = readFileSync(join('docs/decisions', file), 'utf8');
      expect(text).toMatch(
        new RegExp(
          `^# ${Number(file.slice(0, 4))}\\. .+\n\n- \\*\\*Status:\\*\\* .+\n- \\*\\*Context:[^]+\n- \\*\\*Decision:[^]+\n- \\*\\*Alternatives:`,
        ),
      );
    }
  });

  it('are there if the code cites them', () => {
    const cited = sourceFiles.flatMap((file) =>
      [...readFileSync(file, 'utf8').matchAll(/docs\/decisions\/([\w-]+\.md)/g)].map(([, record = '']) => record),
    );
    expect(cited.length).toBeGreaterThan(0);
    expect(cited.filter((record) => !decisions.includes(record))).toEqual([]);
  });
});
