import { hash } from 'node:crypto';
import { once } from 'node:events';
import type { Response } from 'express';
import { loadInherited } from '../repositories/inherited.js';
import type { Bson, Page, PageSummary } from '../repositories/page.js';
import type { ProjectionContext } from '../schema/projection.js';
import type { ListedType } from '../schema/resource.js';
import { getNumber } from '../serialize/bson.js';
import type { Format } from '../serialize/format.js';
import { type ListOptions, ListWriter } from '../serialize/list.js';
import { buildJsonStatus, writeObject, writeStatus } from '../serialize/object.js';
import { toXml } from '../serialize/plain-xml.js';
import { Projection, projectionOf } from '../serialize/projections.js';
import { localsOf, type RequestContext } from './context.js';
import { isXmlPreferred } from './negotiate.js';
import type { YieldTurn } from './yield-queue.js';

const contentTypes = { json: 'application/json; charset=utf-8', xml: 'application/xml; charset=utf-8' } as const;

function formatOf(response: Response): Format {
  return isXmlPreferred(response.req.headers.accept) ? 'xml' : 'json';
}

/** Bodies up to this size go out in one write with the headers. */
const single_write_limit_bytes = 4096;

function send(response: Response, status: number, format: Format, body: Buffer): void {
  response.statusCode = status;
  response.setHeader('Content-Type', contentTypes[format]);
  response.setHeader('Content-Length', body.length);
  varyByAccept(response);
  if (body.length > single_write_limit_bytes) response.end(body);
  else response.end(body.toString('latin1'), 'latin1');
}

function varyByAccept(response: Response): void {
  const others = response.getHeader('Vary');
  response.setHeader('Vary', others === undefined ? 'Accept' : `${others}, Accept`);
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
  const format = formatOf(response);
  const body = { code, message, details };
  send(response, status, format, Buffer.from(format === 'xml' ? toXml('response', body) : JSON.stringify(body)));
}

/** Sends a list of plain values, which are called `element` in XML. */
export function sendList(
  response: Response,
  element: string,
  total_documents: number,
  values: readonly object[],
): void {
  const format = formatOf(response);
  const list = new ListWriter({ projection: new Projection({ element }), format, context: undefined, total_documents });
  for (const value of values) list.appendValue(value);
  send(response, 200, format, list.end());
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
  /** Sends a page while it is read. */
  list(ctx: RequestContext, page: Page): Promise<void>;
}

/** Sends 200 with a status body and empty details. */
export function sendSuccess({ response }: RequestContext, code: number, message: string): void {
  sendStatus(response, 200, code, message);
}

/** Bytes written per turn of the event loop. */
const chunk_bytes = 128 * 1024;
/** Batches of more documents than this wait for a turn of the event loop before they are written. */
const yield_threshold = 100;
/** A body up to this size is sent as a whole, with its length. */
const flush_threshold_bytes = 1024 * 1024;

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
        varyByAccept(response);
        response.status(304).end();
        return;
      }
      send(response, 200, format, body);
    },
    updated: (ctx, document, message) => sendDetails(ctx, document, 200, 2005, message),
    created: (ctx, document, message) => sendDetails(ctx, document, 201, 2001, message),
    async list(ctx, { total_documents, batches, summary }) {
      const { response, now, started_at_ms } = ctx;
      const context: ProjectionContext = { now, inherited: new Map() };
      const metadata = summary && metadataOf(summary, performance.now() - started_at_ms);
      const options = { projection: projectionFor(response, 'list'), context, total_documents, metadata };
      await streamList(response, yieldTurn, options, batches, async (batch, list) => {
        context.inherited = (await loadContext(ctx, batch)).inherited;
        return (document) => list.append(document);
      });
    },
  };
}

interface ValueList {
  /** What an item is called in XML. */
  element: string;
  total_documents: number;
  metadata: object;
  batches: AsyncIterable<readonly object[]>;
}

/** Sends a list of plain values while it is read. */
export async function sendValues(
  { response }: RequestContext,
  yieldTurn: YieldTurn,
  { element, batches, ...envelope }: ValueList,
): Promise<void> {
  const options = { ...envelope, projection: new Projection({ element }), context: undefined };
  await streamList(response, yieldTurn, options, batches, async (_, list) => (value) => list.appendValue(value));
}

/**
 * Writes a list in pieces, no faster than the client reads, and stops when nobody waits for it any more.
 * @param prepare called for each batch; returns what appends one of its items
 */
async function streamList<Context, Item>(
  response: Response,
  yieldTurn: YieldTurn,
  options: Omit<ListOptions<Context>, 'format'>,
  batches: AsyncIterable<readonly Item[]>,
  prepare: (batch: readonly Item[], list: ListWriter<Context>) => Promise<(item: Item) => void>,
): Promise<void> {
  const format = formatOf(response);
  const list = new ListWriter({ ...options, format });
  const parts: Buffer[] = [];
  let unsent_bytes = 0;
  // leaving the loop closes the cursor
  for await (const batch of batches) {
    if (isAbandoned(response)) return;
    if (batch.length > yield_threshold) await yieldTurn();
    const append = await prepare(batch, list);
    for (const item of batch) {
      append(item);
      if (list.size < chunk_bytes) continue;
      await yieldTurn();
      unsent_bytes += list.size;
      parts.push(list.take());
      if (unsent_bytes < flush_threshold_bytes) continue;
      if (isAbandoned(response)) return;
      await writeWithBackpressure(response, format, Buffer.concat(parts.splice(0)));
      unsent_bytes = 0;
    }
  }
  if (isAbandoned(response)) return;
  parts.push(list.end());
  if (response.headersSent) response.end(Buffer.concat(parts));
  else send(response, 200, format, Buffer.concat(parts));
}

/** The metadata in the order of reference/streams.md#metadata. */
function metadataOf({ parameters, returned, at_first, at_last }: PageSummary, took_ms: number): object {
  return { parameters, returned, took_ms: Math.round(took_ms), at_first, at_last };
}

/** Reports whether nobody waits for the rest of a response: its client has left, or a timeout has been answered. */
function isAbandoned({ destroyed, writableEnded }: Response): boolean {
  return destroyed || writableEnded;
}

/** Writes part of a large body with back-pressure: no faster than the client reads. */
async function writeWithBackpressure(response: Response, format: Format, part: Buffer): Promise<void> {
  if (!response.headersSent) {
    response.setHeader('Content-Type', contentTypes[format]);
    varyByAccept(response);
  }
  if (response.write(part)) return;
  const settled = new AbortController();
  await Promise.race(['drain', 'close'].map((event) => once(response, event, { signal: settled.signal })));
  settled.abort();
}

/** Compares `If-None-Match` with an entity tag, weakly (RFC 9110 §13.1.2). */
export function isNotModified(header: string | undefined, tag: unknown): boolean {
  if (header === undefined || tag === undefined) return false;
  return header
    .split(',')
    .some((candidate) => candidate.trim() === '*' || candidate.trim().replace(/^W\//, '') === tag);
}
