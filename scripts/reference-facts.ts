import { providers } from '../src/file-storage/providers/providers.js';
import type { Endpoint } from '../src/http/context.js';
import { groupBy } from '../src/lib/group-by.js';
import { collections, device, resources } from '../src/resources/index.js';
import type { Field, FieldType } from '../src/schema/fields.js';
import { successes } from '../src/schema/operation.js';
import type { ListedType, Resource } from '../src/schema/resource.js';

const ancestorParameters = device.ancestors.map(({ field }) => field);
const listParameters = ['max', 'sort', 'order', 'offset', 'format', 'fields', 'after', ...ancestorParameters];
/** Types with the common fields, which have a section of their own. */
const resourceNames = new Set(collections.filter((type) => 'messages' in type).map(({ plural }) => plural));
const listedTypes = collections.filter((type): type is ListedType => 'defaultSort' in type);

/** Facts by the name of a field or parameter. */
type Facts = ReadonlyMap<string, string>;
type Kind = 'fields' | 'parameters';

const code = (text: string) => `\`${text}\``;
const namesIn = (text = '') => [...text.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
const join = (separator: string, ...parts: (string | false)[]) => parts.filter(Boolean).join(separator);

/** Writes facts of declarations into pages of the reference; what the pages say beside them stays. */
export function createFactsWriter(operations: readonly Endpoint[]) {
  const shown = new Set<string>();
  const expected = new Set(operations.map(({ method, path }) => `${method.toUpperCase()} ${path}`));

  /** Fills `- NAMES (FACTS)` and `| NAMES | MAX |` between markers, and operations. @throws Error for what is not declared */
  function write(page: string, text: string): string {
    const marked = /(<!-- (fields|parameters) of ([\w, ]+): [^\n]* -->\n)(.*?)(?=\n<!-- \/\2 -->\n)/gs;
    const written = text.replaceAll(marked, (_all, begin: string, kind: Kind, names: string, body: string) => {
      const types = names.split(', ').map((name): [string, Facts] => [name, describe(kind, name)]);
      return begin + fill(kind, `${page}, ${kind} of ${names}`, body, new Map(types));
    });
    const operation = /^- `([A-Z]+ [^`]+)` \(`\w+`(; [^)]+)?\):(?: list| (?:\d+, )?\d{4} `[^`]*`)?/gm;
    return written.replaceAll(operation, (_all, name: string, types = '') => {
      const served = expandTypes(name, namesIn(types)).map((values) => describeOperation(name, types, values));
      return `- ${code(name)} ${pickCommon(`${page}, ${name}`, served)}`;
    });
  }

  /** @throws Error if the pages lack an operation, or a field or parameter of a list */
  function assertComplete(): void {
    const listed = listedTypes.filter((type) => queryOf(type).size > 0).map(({ plural }) => plural);
    const unlisted = ['networking', 'mqttcredentials', ...providers.map(({ name }) => name)];
    const common = describe('fields', 'common');
    for (const kind of ['fields', 'parameters'] as const)
      for (const type of kind === 'fields' ? [...listed, ...unlisted] : listed)
        for (const [name, fact] of describe(kind, type))
          if (!resourceNames.has(type) || kind === 'parameters' || common.get(name) !== fact)
            expected.add(`${kind} ${type}.${name}`);
    const missing = [...expected].filter((name) => !shown.has(name));
    if (missing.length > 0) throw new Error(`docs/reference lacks ${missing.join(', ')}`);
  }

  /** Prints how lists are sorted without `sort`. */
  function printSorts(): string {
    const sorted = groupBy(
      listedTypes.filter((type) => queryOf(type).has('after')),
      ({ defaultSort }) => defaultSort,
    );
    const label = ({ title }: ListedType) =>
      `${title.replaceAll(/\B[A-Z]/g, ' $&').toLowerCase()}s`.replace(/^(?:api|mqtt) /, (word) => word.toUpperCase());
    return [...sorted].map(([sort, types]) => `- ${code(sort)}: ${types.map(label).join(', ')}\n`).join('');
  }

  function queryOf(type: ListedType): ReadonlyMap<string, FieldType> {
    const lists = operations.filter(({ result }) => result.kind === 'list' && result.type === type);
    return new Map(lists.flatMap(({ query = new Map<string, FieldType>() }) => [...query]));
  }

  /** Parameters of the lists of a type that its fields do not say. */
  function parametersOf(type: ListedType): ReadonlyMap<string, FieldType> {
    const filtered = Object.keys({ ...type.readOnly, ...type.fields }).filter((key) => isFilter(type, key));
    const usual = new Set([...listParameters, ...filtered.flatMap((key) => [key, `${key}_from`, `${key}_to`])]);
    return new Map([...queryOf(type)].filter(([name]) => !usual.has(name)));
  }

  // `device` filters the streams of an account only
  const isFilter = (type: ListedType, key: string) =>
    queryOf(type).has(key) && type.filters.some(({ params }) => key in params);

  function describe(kind: Kind, name: string): Facts {
    const type = name === 'common' ? resources[0] : listedTypes.find(({ plural }) => plural === name);
    if (type === undefined) {
      const provider = providers.find((item) => item.name === name);
      const members = Object.entries(provider?.fields ?? device.fields[name]?.type.members ?? {});
      return new Map(members.map(([key, field]) => [key, describeField(field)]));
    }
    const facts = kind === 'fields' ? describeFields(type) : describeParameters(type);
    return new Map([...facts].filter(([key]) => name !== 'common' || key !== 'id_customer'));
  }

  const describeParameters = (type: ListedType): Facts =>
    new Map([...parametersOf(type)].map(([key, parameter]) => [key, maxOf(parameter)]));

  function describeFields(type: ListedType): Map<string, string> {
    const parents: readonly string[] = 'parents' in type ? (type.parents as string[]) : [];
    const query = queryOf(type);
    const readOnly = Object.keys(type.fields).length > 0 ? 'read-only' : 'optional';
    const facts = Object.entries({ ...type.readOnly, ...type.fields }).map(([key, field]): [string, string] => {
      const writer = key in type.fields ? parents.length > 1 && parents.includes(key) && 'one of two' : readOnly;
      const filter = isFilter(type, key) && (query.has(`${key}_from`) ? 'range' : 'exact');
      const sort = query.has('sort') && type.sorts.has(key) && 'sort';
      return [key, join('; ', describeField(field, writer || field.presence), join(', ', filter, sort))];
    });
    return new Map(facts);
  }

  /** Describes scope and answer; with values of `{types}` those of one type of many. */
  function describeOperation(name: string, types: string, values: Readonly<Record<string, string>>): string {
    const path = name.replaceAll(/\{(\w+)\}/g, (all, key: string) => values[key] ?? all);
    const operation = operations.find((served) => `${served.method.toUpperCase()} ${served.path}` === path);
    if (operation === undefined) throw new Error(`no operation ${path}`);
    shown.add(path);
    const { scope, result } = operation;
    const head = `(${code(scope)}${types}):`;
    if (result.kind !== 'status') return join(' ', head, result.kind === 'list' && 'list');
    const { status, code: number } = successes[result.success];
    const { created = '', message = '' } = values;
    const template = created && result.message.replace(created, '{created}').replace(message, '{message}');
    return join(' ', head, status !== 200 && `${status},`, `${number}`, code(template || result.message));
  }

  function fill(kind: Kind, place: string, body: string, types: ReadonlyMap<string, Facts>): string {
    const { pattern, print } = forms[kind];
    return body.replaceAll(pattern, (_all, head: string) => {
      const [names, owners] = head.split(' of ');
      const facts = (owners === undefined ? [...types.keys()] : namesIn(owners)).flatMap((type) =>
        namesIn(names).map((name) => {
          shown.add(`${kind} ${type}.${name}`);
          return types.get(type)?.get(name);
        }),
      );
      return print(head, pickCommon(`${place}, ${head}`, facts));
    });
  }

  return { write, printSorts, assertComplete };
}

function describeField({ type, presence, defaultValue }: Field, writer: string = presence): string {
  const shown = presence === 'default' && writer === presence ? `default ${code(String(defaultValue))}` : writer;
  return join(', ', shown !== 'optional' && shown, maxOf(type) && `≤${maxOf(type)}`);
}

/** The longest text that a type takes; that of a name is in its pattern. */
function maxOf({ schema }: FieldType): string {
  const inner = /\{0,(\d+)\}[^{}]*$/.exec(String(schema.pattern))?.[1];
  return String(schema.maxLength ?? (inner === undefined ? '' : Number(inner) + 2));
}

/** Values of `{types}` and the like in a path, for each resource, or those of `plurals`, and each type of its children. */
function expandTypes(name: string, plurals: readonly string[]): Record<string, string>[] {
  if (!name.includes('{types}')) return [{}];
  const types = resources.filter(({ plural }) => plurals.length === 0 || plurals.includes(plural));
  return types.flatMap((type) =>
    (name.includes('{children}') ? childrenOf(type) : [type]).map((child) => ({
      types: type.plural,
      type_id_developer: `{${type.name}_id_developer}`,
      children: child.plural,
      child_id_developer: `{${child.name}_id_developer}`,
      created: type.messages.created,
      message: labelOf(type),
    })),
  );
}

const childrenOf = ({ plural }: Resource) =>
  resources.filter(({ parents, fields }) => parents.some((key) => fields[key]?.references?.plural === plural));
const labelOf = ({ messages }: Resource) => messages.updated.replace(' updated', '');

/** Prints what `{created}`, `{message}` and `{children}` stand for. */
export function printTypes(): string {
  const rows = resources.map((type) => {
    const cells = [type.plural, type.messages.created, labelOf(type)].map(code);
    const children = childrenOf(type).map(({ plural }) => code(plural));
    return `| ${cells.join(' | ')} |${children.length > 0 ? ` ${children.join(', ')}` : ''} |\n`;
  });
  return `| types | created | message | children |\n|---|---|---|---|\n${rows.join('')}`;
}

/** Items of lists and rows of tables, with what is written behind their names. */
const forms = {
  fields: {
    pattern: /^- (`[^(:\n]*`)(?: \([^)]*\))?/gm,
    print: (head: string, fact: string) => `- ${join(' ', head, fact && `(${fact})`)}`,
  },
  parameters: {
    pattern: /^\| (`[^|]*`) \|[^|]*\|/gm,
    print: (head: string, fact: string) => `| ${head} |${fact && ` ${fact}`} |`,
  },
};

/** The fact of all names of an item. @throws Error if they differ, or one is not declared */
function pickCommon(place: string, facts: readonly (string | undefined)[]): string {
  const [first, ...others] = new Set(facts);
  if (first === undefined || others.length > 0)
    throw new Error(`${place} cannot be ${[first, ...others].join(' and ')}`);
  return first;
}
