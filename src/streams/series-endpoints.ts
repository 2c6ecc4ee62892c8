import { AppError } from '../errors.js';
import type { Answer, Endpoint, RequestContext } from '../http/context.js';
import { chooseListFormat } from '../http/negotiate.js';
import { type CalendarUnit, calendarUnits } from '../lib/local-time.js';
import { assertExists } from '../objects/resources.js';
import { findFilteredDevices } from '../objects/select/lists.js';
import { findBelow } from '../objects/tree/count-tree.js';
import { isTimeZone } from '../resources/catalogues/time-zones.js';
import { bySavedFilter } from '../resources/device/configs.js';
import { asset, device, group, project, service } from '../resources/index.js';
import { type DataPath, parseDataPath } from '../schema/data-path.js';
import { commaSeparated } from '../schema/fields/list.js';
import { integer, timestamp } from '../schema/fields/number.js';
import { choice, max_identifier_length, text, textMatching } from '../schema/fields/text.js';
import { type FieldType, optional, required, withDocumentation } from '../schema/fields.js';
import { answerFormat, type ListFormat } from '../schema/list-parameters.js';
import { describeObject } from '../schema/openapi/bodies.js';
import { parseQuery } from '../schema/query.js';
import { describeIdentifier, type Resource } from '../schema/resource.js';
import { getString } from '../serialize/bson.js';
import { type Aggregate, aggregates } from './accumulators.js';
import { buildFixedBuckets, buildLocalBuckets } from './buckets.js';
import { columnsOfSeries, type DeviceRef, readSeries, type SeriesRequest } from './series.js';

const max_buckets = 5000;
const tooManyBuckets = `must be longer: the span has more than ${max_buckets} buckets`;
const max_paths = 10;
const max_devices = 100;
const default_points = 500;
const day_s = 86_400;
/** Lengths of buckets that `points` chooses from, in seconds; then whole days. */
const bucket_lengths_s = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => 60 * minutes),
  ...[1, 2, 3, 6, 12].map((hours) => 3600 * hours),
];

function list<T>(parse: (part: string) => T | undefined, hint: string, max: number): FieldType {
  const type = text(4000);
  const schema = { ...type.schema, description: `Must be ${hint}.` };
  const separated = commaSeparated({ ...type, schema }, { parse, hint, max });
  return {
    ...separated,
    query: (joined, param, faults) => {
      type.query?.(joined, param, faults);
      return param in faults ? undefined : separated.query?.(joined, param, faults);
    },
  };
}

/** Whole seconds, or a unit of the calendar. */
function bucketLength(): FieldType {
  const type = integer({ min: 1 });
  return {
    ...type,
    query: (word, param, faults) => {
      const unit = calendarUnits.find((each) => each === word);
      const value = unit ?? type.query?.(word, param, faults);
      if (param in faults) faults[param] = `${faults[param]}, or one of ${calendarUnits.join(', ')}`;
      return value;
    },
    schema: {
      type: 'string',
      pattern: `^(?:[1-9][0-9]{0,15}|${calendarUnits.join('|')})$`,
      description: 'Whole seconds, or `day`, `week` (from Monday) or `month` of a time zone.',
    },
  };
}

const parameters = new Map<string, FieldType>([
  [
    'fields',
    withDocumentation(
      list(parseDataPath, `1 to ${max_paths} different paths into data, separated by commas`, max_paths),
      {
        about: 'Keys joined by dots, or JSON Pointers.',
        example: 'bar,/temperature',
      },
    ),
  ],
  [
    'aggregate',
    withDocumentation(
      list(
        (word) => aggregates.find((aggregate) => aggregate === word),
        `different ones of ${aggregates.join(', ')}, separated by commas`,
        aggregates.length,
      ),
      { about: 'Aggregates of the values in a bucket, by default avg,min,max.', example: 'avg,max' },
    ),
  ],
  ['every', withDocumentation(bucketLength(), { about: 'Length of a bucket.', example: 'day' })],
  [
    'time_zone',
    withDocumentation(textMatching(100, isTimeZone, 'a time zone listed at /time_zones/'), {
      about: 'Time zone of days, weeks and months: by default that of the device, for several devices UTC.',
      example: 'Europe/Madrid',
      catalogue: 'time_zones',
    }),
  ],
  [
    'points',
    withDocumentation(integer({ min: 1, max: max_buckets }), {
      about: `Largest number of buckets, by default ${default_points}. Not together with every.`,
      example: 24,
    }),
  ],
  ['at_from', withDocumentation(timestamp(), { about: 'Beginning of the span.', example: 1_699_920_000 })],
  ['at_to', withDocumentation(timestamp(), { about: 'End of the span.', example: 1_700_006_400 })],
  ['format', answerFormat],
]);
const parametersAboveDevices = new Map<string, FieldType>([
  ...parameters,
  ['by', withDocumentation(choice('device'), { about: 'Separate entries for each device.', example: 'device' })],
]);

/** Creates the endpoints that aggregate streams by time (reference/series.md#operations). */
export function seriesEndpoints(): Endpoint[] {
  return [...[device, group, asset, service, project].map((resource) => seriesEndpoint(resource)), filteredEndpoint()];
}

function seriesEndpoint(resource: Resource): Endpoint {
  const { name, plural, title } = resource;
  const isDevice = plural === device.plural;
  const query = isDevice ? parameters : parametersAboveDevices;
  return {
    operationId: `getSeriesOf${title}`,
    method: 'get',
    path: `/${plural}/{${name}_id_developer}/series/`,
    pathParameters: { [`${name}_id_developer`]: describeIdentifier(resource) },
    tag: plural,
    summary: `Aggregate the data streams of a ${isDevice ? name : `${name}'s devices`} by time`,
    scope: 'read',
    isCostly: true,
    query,
    requiredQuery: ['fields'],
    result: { kind: 'list', type: entryType, metadata: metadataSchema },
    async handle(ctx) {
      const parsed = parseSeries(ctx, query);
      const id = ctx.path[`${name}_id_developer`] ?? '';
      const node = await assertExists(ctx, resource, id);
      const request = await placeBuckets(parsed, isDevice ? () => findTimeZone(ctx, id) : undefined);
      return answerSeries(ctx, isDevice ? [{ _id: node._id, id }] : await findBelow(ctx, device, node), request);
    },
  };
}

/** The devices that a saved filter selects (reference/filters.md#use). */
function filteredEndpoint(): Endpoint {
  const query = new Map([...parametersAboveDevices, ...Object.entries(bySavedFilter.params)]);
  return {
    operationId: 'getSeriesOfSavedFilter',
    method: 'get',
    path: `/${device.plural}/series/`,
    tag: device.plural,
    summary: 'Aggregate the data streams of the devices that a saved filter selects',
    scope: 'read',
    // saved filters are the account's
    limitedKeys: 'refused',
    isCostly: true,
    query,
    requiredQuery: ['fields', 'filter'],
    result: { kind: 'list', type: entryType, metadata: metadataSchema },
    async handle(ctx) {
      const request = await placeBuckets(parseSeries(ctx, query));
      return answerSeries(ctx, await findFilteredDevices(ctx, request.filter), request);
    },
  };
}

/** @throws AppError badParameter (4004) for too many devices */
async function answerSeries(
  ctx: RequestContext,
  devices: readonly DeviceRef[],
  request: PlacedSeries,
): Promise<Answer> {
  if (request.byDevice && devices.length > max_devices)
    throw new AppError('badParameter', { by: `there are more than ${max_devices} devices` });
  const series = await readSeries(ctx, devices, request);
  const { every, at_from, at_to } = request;
  const output = { format: request.format, columns: columnsOfSeries(request) };
  return { values: { ...series, metadata: { every, at_from, at_to }, output } };
}

interface ParsedSeries extends Omit<SeriesRequest, 'buckets'> {
  /** Seconds, or a unit of the calendar. */
  every: number | CalendarUnit;
  time_zone: string | undefined;
  format: ListFormat;
  /** The saved filter, where the parameters have one. */
  filter: string;
}

type PlacedSeries = ParsedSeries & SeriesRequest;

/** Reads the time zone of a device. */
async function findTimeZone(ctx: RequestContext, id: string): Promise<string | undefined> {
  const document = await ctx.store.loader(device.plural).find(ctx, id);
  const time_zone = document && getString(document, 'time_zone');
  return time_zone !== undefined && isTimeZone(time_zone) ? time_zone : undefined;
}

/** Adds the buckets. @throws AppError badParameter (4004) for too many days, weeks or months */
async function placeBuckets(parsed: ParsedSeries, findZone?: () => Promise<string | undefined>): Promise<PlacedSeries> {
  const { every } = parsed;
  if (typeof every === 'number') return { ...parsed, buckets: buildFixedBuckets(every) };
  const time_zone = parsed.time_zone ?? (await findZone?.()) ?? 'UTC';
  const buckets = await buildLocalBuckets(every, time_zone, parsed, max_buckets);
  if (buckets === undefined) throw new AppError('badParameter', { every: tooManyBuckets });
  return { ...parsed, buckets };
}

/** @throws AppError badParameter (4004) */
function parseSeries(
  { query, now, moment = now, request }: RequestContext,
  params: ReadonlyMap<string, FieldType>,
): ParsedSeries {
  const parsed = parseQuery(query, params, (values, faults) => {
    if (values.fields === undefined) faults.fields ??= 'is required';
    if (params.has('filter') && values.filter === undefined) faults.filter ??= 'is required';
    if (values.every !== undefined && values.points !== undefined) faults.points = 'must not come with every';
    const paths = (values.fields ?? []) as readonly DataPath[];
    const isLocal = typeof values.every === 'string';
    if (values.time_zone !== undefined && !isLocal)
      faults.time_zone ??= `must come with ${calendarUnits.join(', ')} as every`;
    const [reserved] = paths.filter(
      ({ text }) => (isLocal && text === 'local') || (values.by === 'device' && text === 'device'),
    );
    if (reserved !== undefined)
      faults.fields = `must name ${reserved.text} as /${reserved.text}, as entries have such a member`;
    const span = spanOf(values, moment);
    if (span.at_from > span.at_to) faults.at_from ??= 'must not be after at_to';
    else if (typeof values.every === 'number' && countBuckets(span, values.every) > max_buckets)
      faults.every = tooManyBuckets;
  });
  const span = spanOf(parsed, moment);
  const format = (parsed.format as ListFormat | undefined) ?? chooseListFormat(request.headers.accept);
  const every =
    (parsed.every as ParsedSeries['every'] | undefined) ??
    chooseLength(span, (parsed.points as number) ?? default_points);
  return {
    ...span,
    every,
    time_zone: parsed.time_zone as string | undefined,
    paths: parsed.fields as DataPath[],
    aggregates: (parsed.aggregate as Aggregate[] | undefined) ?? ['avg', 'min', 'max'],
    byDevice: parsed.by === 'device',
    format,
    isFlat: format === 'csv',
    filter: String(parsed.filter ?? ''),
  };
}

interface Span {
  at_from: number;
  at_to: number;
}

function spanOf(values: Record<string, unknown>, moment: number): Span {
  const { at_to = Math.ceil(moment) } = values as { at_to?: number };
  const { at_from = Math.max(0, at_to - day_s) } = values as { at_from?: number };
  return { at_from, at_to };
}

function countBuckets({ at_from, at_to }: Span, every: number): number {
  return Math.floor(at_to / every) - Math.floor(at_from / every) + 1;
}

/** Chooses the shortest length with which the span touches at most `points` buckets. */
function chooseLength(span: Span, points: number): number {
  const length_s = bucket_lengths_s.find((every) => countBuckets(span, every) <= points);
  if (length_s !== undefined) return length_s;
  const min_days = Math.max(1, Math.floor((span.at_to - span.at_from) / (points * day_s)));
  for (let days = min_days; ; days++) if (countBuckets(span, days * day_s) <= points) return days * day_s;
}

const metadataSchema = describeObject(
  {
    every: required(
      { ...integer(), schema: {} },
      { about: 'Length of a bucket: a number of seconds, or `day`, `week` or `month`.', example: 3600 },
    ),
    at_from: required(timestamp(), { about: 'Beginning of the span.', example: 1_699_920_000 }),
    at_to: required(timestamp(), { about: 'End of the span.', example: 1_700_006_400 }),
  },
  ({ type }) => type.schema,
  {
    title: 'SeriesMetadata',
    description: 'The length of the buckets, and the span as asked for.',
    additionalProperties: false,
    examples: [{ every: 3600, at_from: 1_699_920_000, at_to: 1_700_006_400 }],
  },
);

const entrySchema = describeObject(
  {
    device: optional(text(max_identifier_length), {
      about: 'The `id_developer` of the device, with `by=device`.',
      example: 'Pump@demo',
    }),
    at: required(timestamp(), { about: 'Beginning of the bucket.', example: 1_699_999_200 }),
    local: optional(text(20), { about: 'Local date of the beginning of a day, week or month.', example: '2023-11-14' }),
    count: required(integer({ min: 0 }), { about: 'Number of data streams in the bucket.', example: 12 }),
  },
  ({ type }) => type.schema,
  {
    title: 'SeriesEntry',
    description: 'One bucket. Each path of `fields` is a further member with the aggregates of its values.',
    additionalProperties: true,
    examples: [{ at: 1_699_999_200, count: 12, bar: { avg: 2.35, max: 2.6 } }],
  },
);

const entryType = { name: 'entry', plural: 'entries', title: 'SeriesEntry', schema: entrySchema };
