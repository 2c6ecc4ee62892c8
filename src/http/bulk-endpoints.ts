import { protectedBy } from '../db/indexes.js';
import { isPlaced } from '../db/reach.js';
import { AppError, type FieldErrors, throwIfAny } from '../errors.js';
import { applyToMatches } from '../objects/bulk/apply-to-matches.js';
import { parseUpdate, withSentNames } from '../schema/body.js';
import { integer } from '../schema/fields/number.js';
import { type Schema, type Values, withDocumentation } from '../schema/fields.js';
import { createSelectionParser, filterParametersOf } from '../schema/list-parameters.js';
import { describeBody, describeClosed } from '../schema/openapi/bodies.js';
import { wouldChange } from '../schema/operation.js';
import type { ListedType, Resource } from '../schema/resource.js';
import type { Answer, Endpoint, RequestContext } from './context.js';
import { setAnswerAtLimit } from './respond.js';

const confirm = withDocumentation(integer({ min: 0 }), {
  about: 'Number of objects that match; without it nothing changes and the answer is 2006 with that number.',
  example: 0,
});

const count = (about: string) => withDocumentation(integer({ min: 0 }), { about, example: 0 }).schema;

const details = describeClosed(
  'Many',
  'Numbers of objects.',
  {
    matched: count('Objects that match.'),
    changed: count('Objects that were changed; absent without `confirm`.'),
  },
  { required: ['matched'], examples: [{ matched: 0, changed: 0 }] },
);

/** The part of an operation that applies to all objects of a type that match: its parameters and the details of its answer. */
export function createSelection(resource: ListedType) {
  return {
    operation: {
      scope: 'write',
      isCostly: true,
      query: new Map([...filterParametersOf(resource), ['confirm', confirm] as const]),
      description: 'Takes at least one filter. Changes nothing unless `confirm` is the number of matches.',
    } as const,
    parse: createSelectionParser(resource, { confirm }),
    details,
  };
}

/** Answers with the numbers of a change of many objects, which changes nothing before it is confirmed. */
export function toBulkAnswer(details: { matched: number; changed?: number }): Answer {
  return { details, ...(details.changed === undefined && { result: wouldChange }) };
}

/** Creates the endpoints that change or delete all objects of a type that match (reference/bulk.md). */
export function bulkEndpoints(resource: Resource): Endpoint[] {
  const { plural, title, messages } = resource;
  const { operation, parse } = createSelection(resource);
  const shared = {
    ...operation,
    path: `/${plural}/`,
    tag: plural,
    pathFilters: resource.pathFilters,
    limitedKeys: isPlaced(plural) ? undefined : 'refused',
  } as const;

  const deleted = { success: 'deleted', message: messages.deleted } as const;
  async function change(ctx: RequestContext, parseValues?: () => Values): Promise<Answer> {
    const request = parse(ctx.query, ctx.now);
    const values = parseValues?.();
    const matched = request.params.confirm;
    const onGone = () => setAnswerAtLimit(ctx, deleted, { matched, changed: matched });
    return toBulkAnswer(await applyToMatches(ctx, resource, { request, values, onGone }));
  }

  return [
    {
      ...shared,
      operationId: `updateMany${title}s`,
      method: 'patch',
      summary: `Change all ${plural} that match`,
      body: { schema: describeManyBody(resource), updating: true },
      result: { kind: 'status', success: 'updated', message: messages.updated, details },
      handle: (ctx) => withSentNames(resource, ctx.body, () => change(ctx, () => parseChanges(resource, ctx.body))),
    },
    {
      ...shared,
      operationId: `deleteMany${title}s`,
      method: 'delete',
      summary: `Delete all ${plural} that match and everything below them`,
      description: 'Takes at least one filter. Deletes nothing unless `confirm` is the number of matches.',
      result: { kind: 'status', ...deleted, details },
      ...(protectedBy.has(plural) && { failures: ['badParameter', 'invalid', 'conflict'] as const }),
      handle: (ctx) => change(ctx),
    },
  ];
}

/** Fields that no two objects can be given alike. */
const ownFields = ['name', 'version'] as const;

function describeManyBody(resource: Resource): Schema {
  const { properties, ...schema } = describeBody(resource, true);
  const shared = Object.entries(properties as Schema).filter(([key]) => !ownFields.some((own) => own === key));
  return { ...schema, title: `${resource.title}ManyUpdate`, properties: Object.fromEntries(shared) };
}

/** @throws AppError invalid (4003) with all faults */
function parseChanges(resource: Resource, body: Values): Values {
  const faults: FieldErrors = {};
  for (const field of ownFields) if (body[field] !== undefined) faults[field] = 'cannot be changed for many at once';
  try {
    const { values } = parseUpdate(resource, body);
    throwIfAny('invalid', faults);
    return values;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    throw new AppError('invalid', { ...error.details, ...faults });
  }
}
