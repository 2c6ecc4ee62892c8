import { countBy } from '../objects/counts.js';
import { commaSeparated } from '../schema/fields/list.js';
import { integer } from '../schema/fields/number.js';
import { text } from '../schema/fields/text.js';
import { type FieldType, required, withDocumentation } from '../schema/fields.js';
import type { Grouping } from '../schema/filters.js';
import { answerFormat, createListParser, filterParametersOf, type ListFormat } from '../schema/list-parameters.js';
import { describeObject } from '../schema/openapi/bodies.js';
import type { ListedType } from '../schema/resource.js';
import type { Endpoint } from './context.js';
import { chooseListFormat } from './negotiate.js';

const max_groupings = 2;
const default_max = 100;

/** Creates the endpoint that counts the objects of a type by their values (reference/lists.md#counts). */
export function countEndpoint(resource: ListedType): Endpoint {
  const { plural, title } = resource;
  const groupings = new Map(resource.filters.flatMap(({ grouping }) => (grouping ? [[grouping.name, grouping]] : [])));
  const query = new Map([
    ['by', groupingNames(groupings)],
    ['max', max],
    ['format', answerFormat],
    ...filterParametersOf(resource),
  ]);
  const parse = createListParser(resource, {
    params: query,
    check: ({ by }, faults) => {
      if (by === undefined) faults.by ??= 'is required';
    },
  });
  return {
    operationId: `count${title}s`,
    method: 'get',
    path: `/${plural}/counts/`,
    tag: plural,
    summary: `Count ${plural} by their values`,
    scope: 'read',
    isCostly: true,
    query,
    pathFilters: resource.pathFilters,
    requiredQuery: ['by'],
    result: { kind: 'list', type: countType },
    async handle(ctx) {
      const request = parse(ctx.query, ctx.now);
      const chosen = (request.params.by as string[]).flatMap((name) => groupings.get(name) ?? []);
      const max = request.params.max === undefined ? default_max : request.max;
      const counts = await countBy(ctx, resource, { ...request, max }, chosen);
      const accepted = chooseListFormat(ctx.request.headers.accept);
      const columns = [...chosen.map(({ name }) => name), 'count'];
      return { values: { ...counts, output: { format: (request.params.format as ListFormat) ?? accepted, columns } } };
    },
  };
}

const max = withDocumentation(integer({ min: 1, max: 1000 }), {
  about: `Combinations of values to show. Default: ${default_max}.`,
  example: default_max,
});

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

const countType = { name: 'entry', plural: 'entries', title: 'Count', schema: countSchema };
