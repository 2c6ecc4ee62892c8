import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { failures } from '../../src/errors.js';
import { providers } from '../../src/file-storage/providers/providers.js';
import * as declared from '../../src/resources/index.js';
import { max_data_bytes } from '../../src/resources/stream.js';
import { paging } from '../../src/schema/list-parameters.js';
import { successes } from '../../src/schema/operation.js';
import { startTestService, type TestService } from '../support/service.js';

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

interface Table {
  section: string;
  columns: string[];
  /** Cells by column. */
  rows: Record<string, string>[];
}

function cellsOf(line: string): string[] {
  return line
    .slice(1, -1)
    .split('|')
    .map((cell) => cell.trim());
}

function tablesOf(file: string): Table[] {
  const tables: Table[] = [];
  let section = '';
  let table: Table | undefined;
  for (const line of proseOf(file)) {
    const heading = /^#+ (.*)/.exec(line)?.[1];
    if (heading !== undefined) section = anchorOf(heading.replace(/^[\d.]+ /, ''));
    if (!line.startsWith('|')) table = undefined;
    else if (table === undefined) {
      table = { section, columns: cellsOf(line), rows: [] };
      tables.push(table);
    } else if (!/^[|-]+$/.test(line)) {
      const { columns } = table;
      table.rows.push(Object.fromEntries(cellsOf(line).map((cell, at) => [columns[at] ?? `column ${at}`, cell])));
    }
  }
  return tables;
}

/** The tables of `streams.md#fields` that begin with a column of this name. */
function rowsAt(citation: string, first: string): Record<string, string>[] {
  const [file = '', section] = citation.split('#');
  return tablesOf(join(folder, file))
    .filter((table) => table.section === section && table.columns[0] === first)
    .flatMap(({ rows }) => rows);
}

interface FieldItem {
  required: string;
  max: string;
  list: string;
}

/**
 * The items of a section such as `resources.md#common-fields`, by field: `- \`a\`, \`b\` (required, ≤50; exact, sort): …`.
 * Those of one type are `- \`a\` of \`groups\`, \`assets\`: …`.
 */
function fieldItemsAt(citation: string, plural = ''): [string, FieldItem][] {
  const [file = '', wanted] = citation.split('#');
  const form =
    /^- (?<names>`[a-z_]+`(?:, `[a-z_]+`)*)(?: of (?<types>`[a-z0-9`, ]+`))?(?: \((?<notes>[^)]*)\))?(?::|$)/;
  let section = '';
  return proseOf(join(folder, file)).flatMap((line) => {
    const heading = /^#+ [\d.]+ (.*)/.exec(line)?.[1];
    if (heading !== undefined) section = anchorOf(heading);
    const { names, types, notes = '' } = form.exec(line)?.groups ?? {};
    if (section !== wanted || (types !== undefined && !namesIn(types).includes(plural))) return [];
    const parts = notes.split(/[,;] /).filter((part) => part !== '');
    const isOfList = (part: string) => ['exact', 'range', 'sort'].includes(part);
    const item = {
      required: parts.find((part) => !isOfList(part) && !part.startsWith('≤')) ?? '',
      max: parts.find((part) => part.startsWith('≤'))?.slice(1) ?? '',
      list: parts.filter(isOfList).join(', '),
    };
    return namesIn(names).map((name): [string, FieldItem] => [name, item]);
  });
}

/** The names in backquotes in a cell. */
function namesIn(cell = ''): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
}

type Listed = (typeof declared)['device' | 'stream'];
type FieldType = Listed['fields'][string]['type'];

/** The longest text a kind takes, where it has a bound. */
function maxOf({ schema, body }: FieldType): number | undefined {
  if (typeof schema.maxLength === 'number') return schema.maxLength;
  // the length of a name is part of its pattern, so it is found by trying
  if (!String(schema.pattern).includes('{0,48}')) return undefined;
  const takes = (length: number) => {
    const faults = {};
    body('x'.repeat(length), 'name', faults);
    return Object.keys(faults).length === 0;
  };
  for (let length = 1; length < 1000; length++) if (takes(length) && !takes(length + 1)) return length;
  return undefined;
}

const maxCell = (max: number | undefined) => (max === undefined ? '' : String(max));

interface Documented {
  listed: Listed;
  label?: string;
  fields: readonly string[];
  parameters?: string;
  isReadOnly?: true;
  without?: string;
}

/** A type with the common fields and the search of all lists. */
const resource = (listed: Listed, label: string, section: string): Documented => ({
  ...{ listed, label },
  fields: ['resources.md#common-fields', section],
  parameters: 'lists.md#search',
});
const plain = (listed: Listed, label: string, section: string): Documented => ({ listed, label, fields: [section] });

/** The sections that document each declaration of `src/resources/index.ts`; later field rows replace earlier ones. */
const documented: Record<string, Documented> = {
  project: resource(declared.project, 'projects', 'resources.md#types'),
  service: resource(declared.service, 'services', 'resources.md#types'),
  group: resource(declared.group, 'groups', 'resources.md#types'),
  asset: resource(declared.asset, 'assets', 'resources.md#types'),
  model: resource(declared.model, 'models', 'resources.md#types'),
  device: { ...resource(declared.device, 'devices', 'devices.md#fields'), parameters: 'devices.md#filters' },
  deviceconfig: plain(declared.deviceconfig, 'configuration files', 'device-configs.md#fields'),
  command: plain(declared.command, 'commands', 'commands.md#fields'),
  stream: { ...plain(declared.stream, 'streams', 'streams.md#fields'), parameters: 'streams.md#listing' },
  event: { ...plain(declared.event, 'events', 'events.md#fields'), isReadOnly: true, parameters: 'events.md#list' },
  apikey: plain(declared.apikey, 'API keys', 'access.md#api-keys'),
  topic: plain(declared.topic, 'MQTT topics', 'mqtt.md#topics'),
  mqttcredentials: { listed: declared.mqttcredentials, fields: ['mqtt.md#credentials'] },
  savedFilter: { ...resource(declared.savedFilter, 'saved filters', 'filters.md#fields'), without: 'enabled' },
  connection: { ...plain(declared.connection, 'MQTT connections', 'mqtt.md#connections'), isReadOnly: true },
  webhook: resource(declared.webhook, 'webhooks', 'webhooks.md#fields'),
  alarmrule: resource(declared.alarmrule, 'alarm rules', 'alarms.md#rules'),
  alarm: plain(declared.alarm, 'alarms', 'alarms.md#alarm-fields'),
  delivery: { listed: declared.delivery, fields: ['webhooks.md#deliveries'], isReadOnly: true },
};
/** Declarations without a field table: internal ones, and `file`, which has a table of its own. */
const undocumented = [
  'devicestate',
  'streamOfAccount',
  'file',
  'filestore',
  'webhookretry',
  'webhookstate',
  'alarmdevice',
  'devicevalue',
  'retainedmessage',
  'streamsummary',
  'valuereview',
  'alarmscan',
];

// only its operations are looked at, so no database is needed
const service = await startTestService({ uri: 'mongodb://127.0.0.1:1/nothing' });
afterAll(() => service.stop());

type Operation = TestService['operations'][number];

function operationAt(method: string, path: string): Operation {
  const found = service.operations.find((one) => one.method === method && one.path === path);
  if (found === undefined) throw new Error(`no operation ${method} ${path}`);
  return found;
}

/** The parameters of all lists of a type. */
function parametersOf(listed: Listed): Map<string, FieldType> {
  const lists = service.operations.filter(({ result }) => result.kind === 'list' && result.type === listed);
  return new Map(lists.flatMap(({ query = new Map<string, FieldType>() }) => [...query]));
}

/** Filters by an object above, which lists.md#filters describes for all types. */
const ancestorParameters = ['id_project', 'id_service', 'id_group', 'id_asset'];
const listParameters = ['max', 'sort', 'order', 'offset', 'format', 'fields', 'after'];

describe('the list of errors', () => {
  const page = readFileSync(join(folder, 'errors.md'), 'utf8');

  it('has every code with its status and message', () => {
    for (const { code, status, message } of Object.values(failures))
      expect(page).toContain(`- ${code} (${status}) \`${message}\`: `);
  });

  it('is complete in the advice to clients', () => {
    const advice = proseOf(join(folder, 'errors.md')).map((line) => /^- ([\d, ]+):/.exec(line)?.[1]);
    const advised = advice.flatMap((codes) => codes?.split(', ') ?? []);
    expect(advised.map(Number).sort()).toEqual([...new Set(Object.values(failures).map(({ code }) => code))].sort());
  });
});

it('documents every declaration', () => {
  const listed = Object.entries(declared)
    .filter(([, one]) => typeof one === 'object' && 'plural' in one)
    .map(([key]) => key);
  expect([...Object.keys(documented), ...undocumented].sort()).toEqual(listed.sort());
});

describe.each(Object.entries(documented))(
  '%s',
  (_name, { listed, label, fields, parameters, isReadOnly, without = '' }) => {
    const rows = new Map(fields.flatMap((citation) => fieldItemsAt(citation, listed.plural)));
    rows.delete(without);
    const all = { ...listed.readOnly, ...listed.fields };
    const parents: readonly string[] = 'parents' in listed ? (listed.parents as readonly string[]) : [];

    it('has a row for each field, and no other', () => {
      expect([...rows.keys()].sort()).toEqual(Object.keys(all).sort());
    });

    it('says who writes a field, its default and the longest text', () => {
      for (const [key, { type, presence, defaultValue }] of Object.entries(all)) {
        const required =
          key in listed.fields
            ? parents.length > 1 && parents.includes(key)
              ? 'one of two'
              : presence === 'default'
                ? `default \`${defaultValue}\``
                : presence
            : 'read-only';
        const { required: shown, max } = rows.get(key) ?? {};
        expect([key, shown || (isReadOnly ? 'read-only' : 'optional'), max]).toEqual([
          key,
          required,
          maxCell(maxOf(type)),
        ]);
      }
    });

    it('says by what a list filters and sorts', () => {
      const query = parametersOf(listed);
      for (const key of Object.keys(all)) {
        // `device` filters the streams of an account only, so the parameter table has it
        const isFilter = listed.filters.some(({ params }) => key in params);
        const filter = !isFilter || label === undefined ? [] : [query.has(`${key}_from`) ? 'range' : 'exact'];
        const sort = label !== undefined && query.has('sort') && listed.sorts.has(key) ? ['sort'] : [];
        expect([key, rows.get(key)?.list ?? '']).toEqual([key, [...filter, ...sort].join(', ')]);
      }
    });

    it('has a row for each other parameter, and no other', () => {
      const shown = parameters === undefined ? [] : rowsAt(parameters, 'parameter');
      const byName = new Map(shown.flatMap((row) => namesIn(row.parameter).map((name) => [name, row])));
      const filtered = Object.keys(all).filter((key) => /exact|range/.test(rows.get(key)?.list ?? ''));
      const known = new Set([
        ...listParameters,
        ...ancestorParameters,
        ...filtered.flatMap((key) => [key, `${key}_from`, `${key}_to`]),
      ]);
      const others = [...parametersOf(listed)].filter(([name]) => !known.has(name));
      expect([...byName.keys()].sort()).toEqual(others.map(([name]) => name).sort());
      for (const [name, kind] of others) expect([name, byName.get(name)?.max]).toEqual([name, maxCell(maxOf(kind))]);
    });

    it('has its default sort, and says what else sorts it', () => {
      if (label === undefined) return;
      const sorting = readFileSync(join(folder, 'lists.md'), 'utf8');
      const items = [...sorting.matchAll(/^- `(\w+)`: ([\w, ]+)$/gm)];
      const item = items.find(([, , labels = '']) => labels.split(/,\s+/).includes(label));
      expect([label, item?.[1]]).toEqual([label, listed.defaultSort]);
      for (const sort of listed.sorts.keys()) if (!(sort in all)) expect(sorting).toContain(`\`sort=${sort}\``);
    });
  },
);

it('describes the filters by an object above', () => {
  const text = readFileSync(join(folder, 'lists.md'), 'utf8');
  for (const name of ancestorParameters) {
    expect(text).toContain(`\`${name}\``);
    expect([...parametersOf(declared.device)].map(([param]) => param)).toContain(name);
  }
});

it('has the fields of networking', () => {
  const members = declared.device.fields.networking?.type.members ?? {};
  expect(
    fieldItemsAt('devices.md#networking').map(([name, { required, max }]) => [name, required || 'optional', max]),
  ).toEqual(Object.entries(members).map(([key, { type, presence }]) => [key, presence, maxCell(maxOf(type))]));
});

it('has the fields of a listed file', () => {
  expect(fieldItemsAt('file-storage.md#listing').map(([name]) => name)).toEqual(Object.keys(declared.file.fields));
});

it('has the settings of every provider', () => {
  const { body } = operationAt('put', '/external/{provider}/user/{username}/');
  const settings = providers.flatMap(({ fields }) => Object.keys(fields));
  expect(Object.keys(body?.schema?.properties ?? {}).sort()).toEqual(settings.sort());
  const rows = providers.flatMap(({ name }) =>
    fieldItemsAt('file-storage.md#providers', name).map(([key, { required, max }]) => [
      name,
      key,
      required || 'optional',
      Number(max),
    ]),
  );
  expect(rows).toEqual(
    providers.flatMap(({ name, fields }) =>
      Object.entries(fields).map(([key, { type, presence }]) => [name, key, presence, maxOf(type)]),
    ),
  );
});

/** The items of a chapter such as `- \`GET /groups/\` (\`read\`; \`types\`): list of groups`. */
function operationsOf(chapter: string): Record<string, string>[] {
  const form = /^- `(?<method>[A-Z]+) (?<path>[^`]+)` \(`(?<scope>\w+)`(?:; (?<types>[^)]+))?\): (?<success>.*)$/;
  return proseOf(join(folder, chapter)).flatMap((line) => {
    const { types, ...row } = form.exec(line)?.groups ?? {};
    if (row.method === undefined) return [];
    return [types === undefined ? row : { ...row, types }];
  });
}

/** Writes a row with `{types}` once for each type, or for those that it names, and for each of their children. */
function expandTypes(row: Record<string, string>, types: Record<string, string>[]): Record<string, string>[] {
  if (!row.path?.includes('{types}')) return [row];
  return types.flatMap((type) => {
    const [plural = ''] = namesIn(type.types);
    if (row.types !== undefined && !namesIn(row.types).includes(plural)) return [];
    const children = row.path?.includes('{children}') ? namesIn(type.children) : [''];
    return children.map((child) => {
      const values: Record<string, string> = {
        types: plural,
        type_id_developer: `{${plural.slice(0, -1)}_id_developer}`,
        children: child,
        child_id_developer: `{${child.slice(0, -1)}_id_developer}`,
        created: namesIn(type.created)[0] ?? '',
        message: namesIn(type.message)[0] ?? '',
      };
      const fill = (text: string) => text.replaceAll(/\{(\w+)\}/g, (all, name: string) => values[name] ?? all);
      return Object.fromEntries(Object.entries(row).map(([column, cell]) => [column, fill(cell)]));
    });
  });
}

/** Status 200 is not shown. */
const describeSuccess = ({ status, code }: { status: number; code: number }, message: string) =>
  `${status === 200 ? '' : `${status}, `}${code} \`${message}\``;

it('has every operation with its scope, status, code and message, and no other', () => {
  const types = rowsAt('resources.md#operations', 'types');
  const rows = chapters.flatMap(operationsOf).flatMap((row) => expandTypes(row, types));
  const shown = rows.map(({ method, path, scope }) => [method, path, scope].join(' '));
  const served = service.operations.map(({ method, path, scope }) => `${method.toUpperCase()} ${path} ${scope}`);
  expect(shown.sort()).toEqual(served.sort());
  for (const { method = '', path = '', success } of rows) {
    const { result } = operationAt(method.toLowerCase(), path);
    const shown =
      result.kind === 'status'
        ? describeSuccess(successes[result.success], result.message)
        : result.kind === 'list'
          ? 'list'
          : '';
    expect([method, path, success]).toEqual([method, path, expect.stringMatching(`^${shown}`)]);
  }
});

it('has every variable with the default of .env.example', () => {
  const lines = readFileSync('.env.example', 'utf8').split('\n');
  const example = lines.filter((line) => /^[A-Z_]+=/.test(line)).map((line) => line.split(/=(.*)/, 2));
  const shown = proseOf(join(folder, 'configuration.md')).map((line) => /^- `([A-Z_]+)`(?: \((.*?)\))?: /.exec(line));
  const rows = new Map(
    shown.flatMap((match): [string, string | undefined][] => (match ? [[match[1] ?? '', match[2]]] : [])),
  );
  expect([...rows.keys()].sort()).toEqual(example.map(([name]) => name).sort());
  for (const [name = '', value] of example) if (value) expect([name, rows.get(name)]).toEqual([name, `\`${value}\``]);
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

  const { device, stream, mqttcredentials } = declared;

  const maxInFilter = (param: string) =>
    device.filters.find(({ params }) => param in params)?.params[param]?.querySchema?.maxLength;

  it.each([
    ['identifier in a body or path', maxOf(device.fields.id_group?.type as FieldType)],
    ['identifier in a filter', maxInFilter('id_group')],
    ['`id_developer` of a resource as a filter', maxInFilter('id_developer')],
  ])('of %s is that of the declaration', (limit, max) => {
    expect(rows.get(limit)).toBe(`${max} characters`);
  });

  it('of pages, passwords and bodies are those of the declarations', () => {
    const { minLength, maxLength } = mqttcredentials.fields.password?.type.schema ?? {};
    const { minimum, maximum } = paging.max.schema;
    const mebibytes = (method: string, path: string) => (operationAt(method, path).body?.limit_bytes ?? 0) / 1024 ** 2;
    expect(Object.fromEntries(rows)).toMatchObject({
      'MQTT `password`': `${minLength} to ${maxLength} characters`,
      'objects on a page': `${minimum} to ${maximum}`,
      body: `${mebibytes('post', '/devices/')} MiB`,
      'body with a configuration file': `${mebibytes('post', '/devices/{device_id_developer}/deviceconfigs/')} MiB`,
    });
    for (const { body } of service.operations)
      expect([undefined, 1, 16]).toContain(body && body.limit_bytes / 1024 ** 2);
  });

  it('of free-form objects are those of the declarations', () => {
    const types = [device.fields.properties, stream.fields.data].map((field) => field?.type as FieldType);
    const rules = new Map(
      rowsAt('identifiers.md#free-form-objects', 'rule').map(({ rule, '`properties`': properties, '`data`': data }) => [
        rule,
        [properties, data],
      ]),
    );
    expect(Object.fromEntries(rules)).toMatchObject({
      'keys of the outermost object': types.map(({ schema }) => String(schema.maxProperties)),
      'characters of such a key': types.map(({ schema }) =>
        String((schema.propertyNames as FieldType['schema'] | undefined)?.maxLength),
      ),
      'levels of nesting, with the object itself': types.map((type) => String(levelsOf(type))),
      'size as compact JSON in UTF-8': ['that of the body', `${max_data_bytes / 1024} KiB`],
    });
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
