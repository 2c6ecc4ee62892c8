import { type Counts, countBy } from '../objects/select/counts.js';
import { commaSeparated } from '../schema/fields/list.js';
import { integer } from '../schema/fields/number.js';
import { text } from '../schema/fields/text.js';
import { type FieldType, required, type Schema, withDocumentation } from '../schema/fields.js';
import type { Grouping } from '../schema/filters.js';
import {
  answerFormat,
  createListParser,
  filterParametersOf,
  type ListFormat,
  type ListParserOptions,
  type ListRequest,
} from '../schema/list-parameters.js';
import { describeObject } from '../schema/openapi/bodies.js';
import type { ListedType } from '../schema/resource.js';
import type { Endpoint, RequestContext } from './context.js';
import { chooseListFormat } from './negotiate.js';

const max_groupings = 2;
const default_max = 100;

interface CountingOptions {
  /** Parameters beside the filters, `max` and `format`. */
  params?: readonly (readonly [string, FieldType])[];
  /** An entry of the answer. */
  schema: Schema;
  check?: ListParserOptions['check'];
  /** @returns also the names of the columns */
  count(ctx: RequestContext, request: ListRequest): Promise<Counts & { columns: readonly string[] }>;
}

/** The part of an operation that makes it count objects of a type. */
export function createCounting(listed: ListedType, { params = [], schema, check, count }: CountingOptions) {
  const maxOf = withDocumentation(integer({ min: 1, max: 1000 }), {
    about: `Combinations of values to show. Default: ${default_max}.`,
    example: default_max,
  });
  const query = new Map([
    ...params,
    ['max', maxOf] as const,
    ['format', answerFormat] as const,
    ...filterParametersOf(listed),
  ]);
  const parse = createListParser(listed, { params: query, ...(check && { check }) });
  return {
    method: 'get',
    scope: 'read',
    isCostly: true,
    query,
    pathFilters: listed.pathFilters,
    result: { kind: 'list', type: { name: 'entry', plural: 'entries', title: String(schema.title), schema } },
    async handle(ctx) {
      const request = parse(ctx.query, ctx.now);
      const max = request.params.max === undefined ? default_max : request.max;
      const { columns, ...counts } = await count(ctx, { ...request, max });
      const accepted = chooseListFormat(ctx.request.headers.accept);
      return { values: { ...counts, output: { format: (request.params.format as ListFormat) ?? accepted, columns } } };
    },
  } as const satisfies Partial<Endpoint>;
}

/** Creates the endpoint that counts the objects of a type by their values (reference/lists.md#counts). */
export function countEndpoint(resource: ListedType): Endpoint {
  const { plural, title } = resource;
  const groupings = new Map(resource.filters.flatMap(({ grouping }) => (grouping ? [[grouping.name, grouping]] : [])));
  return {
    operationId: `count${title}s`,
    path: `/${plural}/counts/`,
    tag: plural,
    summary: `Count ${plural} by their values`,
    requiredQuery: ['by'],
    ...createCounting(resource, {
      params: [['by', groupingNames(groupings)]],
      schema: countSchema,
      check({ by }, faults) {
        if (by === undefined) faults.by ??= 'is required';
      },
      async count(ctx, request) {
        const chosen = (request.params.by as string[]).flatMap((name) => groupings.get(name) ?? []);
        const columns = [...chosen.map(({ name }) => name), 'count'];
        return { ...(await countBy(ctx, resource, request, chosen)), columns };
      },
    }),
  };
}

/** One or two different values, separated by a comma. */
function groupingNames(groupings: ReadonlyMap<string, Grouping>): FieldType {
  const names = [...groupings.keys()];
  const hint = `one or two different ones of ${names.join(', ')}, separated by a comma`;
  const parse = (name: string) => (groupings.has(name) ? name : undefined);
  return withDocumentation(commaSeparated(text(200), { parse, hint, max: max_groupings }), {
    about: `Values to count by: ${hint}.`,
    example: names[0] ?? '',
  });
}

const countSchema = describeObject(
  { count: required(integer({ min: 0 }), { about: 'Number of objects with these values.', example: 12 }) },
  ({ type }) => type.schema,
  {
    title: 'Count',
    description: 'Each name in `by` is a further member: the value, or null for objects without one.',
    additionalProperties: true,
    examples: [{ count: 12, type: 'pump' }],
  },
);
