import { hash } from 'node:crypto';
import type { Response } from 'express';
import { loadInherited } from '../objects/inherited.js';
import type { Bson, Page, PageSummary } from '../objects/page.js';
import { isRowFormat } from '../schema/list-query.js';
import type { ProjectionContext } from '../schema/projection.js';
import type { ListedType } from '../schema/resource.js';
import type { RequestedOutput } from '../schema/validation.js';
import { getNumber } from '../serialize/bson.js';
import type { Format } from '../serialize/format.js';
import { type ListOptions, type ListOutput, ListWriter } from '../serialize/list.js';
import { buildJsonStatus, writeObject, writeStatus } from '../serialize/object.js';
import { toXml } from '../serialize/plain-xml.js';
import { Projection, projectionOf, selectedProjectionOf } from '../serialize/projections.js';
import { RowsWriter } from '../serialize/rows.js';
import { FieldSelection } from '../serialize/selection.js';
import { localsOf, type RequestContext } from './context.js';
import { isXmlPreferred } from './negotiate.js';
import { send, setVary } from './send.js';
import { writeList } from './write-list.js';
import type { YieldTurn } from './yield-queue.js';

function formatOf(response: Response): Format {
  return isXmlPreferred(response.req.headers.accept) ? 'xml' : 'json';
}

/** Sends `{code, message, details}` with plain values (reference/requests.md#answers). */
export function sendStatus(
  response: Response,
  status: number,
  code: number,
  message: string,
  details: object = {},
): void {
  localsOf(response).code = code;
  sendPlain(response, { code, message, details }, status);
}

/** Sends a plain value as the whole body; its XML root is `response`. */
export function sendPlain(response: Response, value: object, status = 200): void {
  const format = formatOf(response);
  send(response, status, format, Buffer.from(format === 'xml' ? toXml('response', value) : JSON.stringify(value)));
}

/** A list of plain values that is held in memory. */
interface PlainList {
  /** XML element of an item. */
  element: string;
  total_documents: number;
  values: readonly object[];
  next: string | undefined;
}

/** Sends a short list of plain values. */
export function sendList(response: Response, { values, next, ...envelope }: PlainList, output: RequestedOutput): void {
  const projection = new Projection({ element: envelope.element });
  const list = createOutput({ ...envelope, projection, context: undefined }, output);
  for (const value of values) list.appendValue(value);
  send(response, 200, output.format, list.end(next));
}

/** Creates the writer of a list in the requested format. */
function createOutput<Context>(
  options: Omit<ListOptions<Context>, 'format'>,
  { format, columns }: RequestedOutput,
): ListOutput {
  return isRowFormat(format) ? new RowsWriter({ ...options, format, columns }) : new ListWriter({ ...options, format });
}

/** Sends `{"response": text}` with this very space: old firmware compares bytes (reference/streams.md#legacy-endpoints). */
export function sendLegacyText(response: Response, text: string, status = 200): void {
  const format = formatOf(response);
  const json = `{"response": ${JSON.stringify(text)}}`;
  send(response, status, format, Buffer.from(format === 'xml' ? toXml('response', { response: text }) : json));
}

/** Sends objects of one type in JSON or XML, with entity tags (reference/requests.md#entity-tags). */
export interface Responder {
  object(ctx: RequestContext, document: Bson): Promise<void>;
  /** 200 / 2005 with the object as details. */
  updated(ctx: RequestContext, document: Bson, message: string): Promise<void>;
  /** 201 / 2001 with the object as details. */
  created(ctx: RequestContext, document: Bson, message: string): Promise<void>;
  /** Sends a page while it is read. @param output format and members; absent: all, in JSON or XML */
  list(ctx: RequestContext, page: Page, output?: RequestedOutput): Promise<void>;
}

/** Sends 200 with a status body and empty details. */
export function sendSuccess({ response }: RequestContext, code: number, message: string): void {
  sendStatus(response, 200, code, message);
}

/** Creates the responder of a type. @param tagged whether objects have an `ETag` */
export function createResponder(yieldTurn: YieldTurn, listed: ListedType, { tagged = true } = {}): Responder {
  const { computed, computedForFormerClients: former = computed } = listed;
  const projections = { object: projectionOf(listed), list: projectionOf(listed, 'list') };
  const formerProjections =
    former === computed
      ? projections
      : { object: projectionOf(listed, 'object', former), list: projectionOf(listed, 'list', former) };

  function projectionFor(response: Response, place: 'object' | 'list'): Projection<ProjectionContext> {
    return (localsOf(response).isFormerClient === true ? formerProjections : projections)[place];
  }

  function listProjectionFor(response: Response, { fields }: RequestedOutput): Projection<ProjectionContext> {
    if (fields === undefined) return projectionFor(response, 'list');
    const members = localsOf(response).isFormerClient === true ? former : computed;
    return selectedProjectionOf(listed, new FieldSelection(fields), members);
  }

  /** The version, and a digest of the response for types that change without a new version. */
  function setEtag(response: Response, document: Bson, write: () => Buffer): void {
    if (!tagged) return;
    const digest = listed.etag === 'version+content' ? `.${hash('sha1', write(), 'base64url')}` : '';
    response.setHeader('ETag', `"${getNumber(document, 'version') ?? 0}${digest}"`);
  }

  async function loadContext(ctx: RequestContext, documents: readonly Bson[]): Promise<ProjectionContext> {
    return { now: ctx.now, inherited: await loadInherited(ctx, listed, documents) };
  }

  async function sendDetails(ctx: RequestContext, document: Bson, status: number, code: number, message: string) {
    const { response } = ctx;
    localsOf(response).code = code;
    const context = await loadContext(ctx, [document]);
    const format = formatOf(response);
    const projection = projectionFor(response, 'object');
    const head = { code, message };
    if (format === 'json') {
      const object = writeObject(document, projection, format, context);
      setEtag(response, document, () => object);
      send(response, status, format, buildJsonStatus(head, object));
      return;
    }
    setEtag(response, document, () => writeObject(document, projection, format, context));
    send(response, status, format, writeStatus(head, document, projection, format, context));
  }

  return {
    async object(ctx, document) {
      const { request, response } = ctx;
      const context = await loadContext(ctx, [document]);
      const format = formatOf(response);
      const body = writeObject(document, projectionFor(response, 'object'), format, context);
      setEtag(response, document, () => body);
      if (isNotModified(request.headers['if-none-match'], response.getHeader('ETag'))) {
        setVary(response);
        response.status(304).end();
        return;
      }
      send(response, 200, format, body);
    },
    updated: (ctx, document, message) => sendDetails(ctx, document, 200, 2005, message),
    created: (ctx, document, message) => sendDetails(ctx, document, 201, 2001, message),
    async list(ctx, { total_documents, batches, summary, next }, output = defaultOutput(ctx.response)) {
      const { response, now, started_at_ms } = ctx;
      const context: ProjectionContext = { now, inherited: new Map() };
      const metadata = summary && metadataOf(summary, performance.now() - started_at_ms);
      const projection = listProjectionFor(response, output);
      const list = createOutput({ projection, context, total_documents, metadata }, output);
      await writeList(ctx, yieldTurn, { format: output.format, list, next }, batches, async (batch) => {
        context.inherited = (await loadContext(ctx, batch)).inherited;
        return (document) => list.append(document);
      });
    },
  };
}

/** The format that `Accept` prefers, for lists without parameters of their own. */
function defaultOutput(response: Response): RequestedOutput {
  return { format: formatOf(response), columns: [] };
}

interface ValueList {
  /** XML element of an item. */
  element: string;
  total_documents: number;
  metadata: object;
  batches: AsyncIterable<readonly object[]>;
}

/** Sends a list of plain values while it is read. */
export async function sendValues(
  ctx: RequestContext,
  yieldTurn: YieldTurn,
  { element, batches, ...envelope }: ValueList,
  output: RequestedOutput,
): Promise<void> {
  const list = createOutput({ ...envelope, projection: new Projection({ element }), context: undefined }, output);
  await writeList(
    ctx,
    yieldTurn,
    { format: output.format, list },
    batches,
    async () => (value) => list.appendValue(value),
  );
}

/** The metadata in the order of reference/streams.md#metadata. */
function metadataOf({ parameters, returned, at_first, at_last }: PageSummary, took_ms: number): object {
  return { parameters, returned, took_ms: Math.round(took_ms), at_first, at_last };
}

/** Compares `If-None-Match` with an entity tag, weakly (RFC 9110 §13.1.2). */
export function isNotModified(header: string | undefined, tag: unknown): boolean {
  if (header === undefined || tag === undefined) return false;
  return header
    .split(',')
    .some((candidate) => candidate.trim() === '*' || candidate.trim().replace(/^W\//, '') === tag);
}
