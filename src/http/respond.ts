import { hash } from 'node:crypto';
import type { Response } from 'express';
import { readAhead } from '../lib/batches.js';
import { awaitLater } from '../lib/promises.js';
import type { Bson, Page } from '../objects/page.js';
import { loadHeadings, loadRequested } from '../objects/select/requested-members.js';
import { loadInherited, loadInheritedInPieces } from '../objects/tree/inherited.js';
import { isRowFormat, type RequestedOutput } from '../schema/list-parameters.js';
import { isListed, isVersionChecked, type Operation, type Success, successes } from '../schema/operation.js';
import type { ProjectionContext } from '../schema/projection.js';
import type { ListedType } from '../schema/resource.js';
import { getNumber } from '../serialize/bson.js';
import type { Format } from '../serialize/format.js';
import { type ListOptions, type ListOutput, ListWriter } from '../serialize/list.js';
import { buildJsonStatus, type StatusHead, writeObject, writeStatus } from '../serialize/object.js';
import { toXml } from '../serialize/plain-xml.js';
import { Projection, projectionOf, selectedProjectionOf } from '../serialize/projections.js';
import { RowsWriter } from '../serialize/rows.js';
import { FieldSelection } from '../serialize/selection.js';
import {
  type Answer,
  buildLocationPath,
  type EndpointDeps,
  localsOf,
  type RequestContext,
  type ValuePage,
} from './context.js';
import { isNotModified } from './entity-tags.js';
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

/** Has this success sent when the time of the request is up: nothing is left to be done that the client could notice. */
export function setAnswerAtLimit({ response }: RequestContext, { success, message }: Success, details?: object): void {
  const { status, code } = successes[success];
  localsOf(response).answerAtLimit = () => sendStatus(response, status, code, message, details);
}

/** Sends a plain value as the whole body; its XML root is `response`. */
function sendPlain(response: Response, value: object, status = 200): void {
  const format = formatOf(response);
  send(response, status, format, Buffer.from(format === 'xml' ? toXml('response', value) : JSON.stringify(value)));
}

/** Creates the writer of a list in the requested format. */
function createOutput<Context>(
  options: Omit<ListOptions<Context>, 'format'>,
  { format, columns }: RequestedOutput,
  headings?: readonly string[],
): ListOutput {
  return isRowFormat(format)
    ? new RowsWriter({ ...options, format, columns, headings })
    : new ListWriter({ ...options, format });
}

/** Sends a text with the very spaces that old programs compare (reference/streams.md#legacy-endpoints). */
export function sendLegacyText(response: Response, text: string, status = 200): void {
  const format = formatOf(response);
  const member = `"response": ${JSON.stringify(text)}`;
  const json = status === 200 ? `{ ${member} }` : `{${member}}`;
  send(response, status, format, Buffer.from(format === 'xml' ? toXml('response', { response: text }) : json));
}

type SendAnswer = (ctx: RequestContext, answer: Answer) => Promise<void> | void;

/** Creates the function that sends the answers of an operation as its `result` declares. */
export function createSender({ result }: Operation, { base_path, yieldTurn }: EndpointDeps): SendAnswer {
  switch (result.kind) {
    case 'status': {
      const sendObject = isListed(result.details)
        ? createObjectSender(result.details, isVersionChecked(result))
        : undefined;
      return (ctx, { details, document, location, result: { success, message } = result }) => {
        const { status, code } = successes[success];
        if (location !== undefined) ctx.response.location(buildLocationPath(base_path, location));
        if (document === undefined) sendStatus(ctx.response, status, code, message, details);
        else return sendObject?.(ctx, document, { head: { status, code, message } });
      };
    }
    case 'list': {
      const { type } = result;
      if ('schema' in type) return (ctx, { values }) => values && sendValues(ctx, yieldTurn, type.name, values);
      const sendPage = createListSender(type, yieldTurn);
      return (ctx, { page, output }) => page && sendPage(ctx, page, output);
    }
    case 'object':
    case 'file': {
      const sendObject = createObjectSender(result.type, result.kind === 'object' && result.type.versioned);
      return (ctx, { document, output }) => document && sendObject(ctx, document, { output });
    }
    case 'plain':
      return ({ response }, { details }) => {
        if (details && !endIfUnchanged(response)) sendPlain(response, details);
      };
    default:
      return () => undefined;
  }
}

/** The projections of a type for programs of today and for former ones (reference/access.md#former-clients), by `fields`. */
function projectionsOf(listed: ListedType, place: 'object' | 'list') {
  const { computed, legacy } = listed;
  const former = legacy.computed ?? computed;
  const projection = projectionOf(listed, place);
  const formerProjection = former === computed ? projection : projectionOf(listed, place, former);
  return (response: Response, fields?: readonly string[]): Projection<ProjectionContext> => {
    const isFormer = localsOf(response).isFormerClient === true;
    if (fields !== undefined)
      return selectedProjectionOf(listed, new FieldSelection(fields), isFormer ? former : computed);
    return isFormer ? formerProjection : projection;
  };
}

interface ObjectOptions {
  /** The object is the details of this status. */
  head?: StatusHead & { status: number };
  output?: RequestedOutput | undefined;
}

/** Creates the function that sends an object, alone or as the details of a status, with an entity tag if it is tagged. */
function createObjectSender(listed: ListedType, isTagged: boolean) {
  const projectionFor = projectionsOf(listed, 'object');

  /** The version, and a digest of the response for types that change without a new version. */
  function setEtag(response: Response, document: Bson, write: () => Buffer): void {
    const digest = listed.etag === 'version+content' ? `.${hash('sha1', write(), 'base64url')}` : '';
    response.setHeader('ETag', `"${getNumber(document, 'version') ?? 0}${digest}"`);
  }

  return async (ctx: RequestContext, document: Bson, { head, output }: ObjectOptions = {}): Promise<void> => {
    const { response } = ctx;
    const requested = output && awaitLater(loadRequested(ctx, listed, [document], output));
    const inherited = await loadInherited(ctx, listed, document);
    const requestedOf = requested && (await requested);
    const context = { now: ctx.now, inherited, requested: requestedOf?.(document) };
    const format = formatOf(response);
    const projection = projectionFor(response, output?.fields);
    const write = () => writeObject(document, projection, format, context);
    const object = head === undefined || format === 'json' ? write() : undefined;
    if (isTagged) setEtag(response, document, () => object ?? write());
    if (head !== undefined) {
      localsOf(response).code = head.code;
      const body = object ? buildJsonStatus(head, object) : writeStatus(head, document, projection, format, context);
      send(response, head.status, format, body);
    } else if (object !== undefined && !endIfUnchanged(response)) send(response, 200, format, object);
  };
}

/** Answers 304 to a client that has what its entity tag names. @returns false if it has not */
function endIfUnchanged(response: Response): boolean {
  if (!isNotModified(response.req.headers['if-none-match'], response.getHeader('ETag'))) return false;
  setVary(response);
  response.status(304).end();
  return true;
}

/** Creates the function that sends a page while it is read. Without `output` it has all members, in JSON or XML. */
export function createListSender(listed: ListedType, yieldTurn: YieldTurn) {
  const projectionFor = projectionsOf(listed, 'list');
  return async (
    ctx: RequestContext,
    { total_documents, batches, summary, next }: Page,
    output: RequestedOutput = { format: formatOf(ctx.response), columns: [] },
  ): Promise<void> => {
    const { response, now, started_at_ms } = ctx;
    const context: ProjectionContext = { now, inherited: new Map() };
    const { parameters, returned, ...extent } = summary ?? {};
    const took_ms = Math.round(performance.now() - started_at_ms);
    const metadata = summary && { parameters, returned, took_ms, ...extent };
    const projection = projectionFor(response, output.fields);
    const headings = await loadHeadings(ctx, listed, output);
    const list = createOutput({ projection, context, total_documents, metadata }, output, headings);
    const load = (batch: readonly Bson[]) => loadRequested(ctx, listed, batch, output);
    const loading = output.requested?.size ? loadAhead(batches, load) : { batches, loadedOf: load };
    let requestedOf: Awaited<ReturnType<typeof load>>;
    async function* inPieces(): AsyncGenerator<readonly Bson[]> {
      for await (const batch of loading.batches) {
        requestedOf = await loading.loadedOf(batch);
        for await (const piece of loadInheritedInPieces(ctx, listed, batch)) {
          context.inherited = piece.inherited;
          yield piece.documents;
        }
      }
    }
    await writeList(ctx, yieldTurn, { format: output.format, list, next }, inPieces(), async () => (document) => {
      context.requested = requestedOf?.(document);
      list.append(document);
    });
  };
}

/** Loads what a batch shows as soon as it is read, while the one before is written. */
function loadAhead<Loaded>(batches: AsyncIterable<readonly Bson[]>, load: (batch: readonly Bson[]) => Promise<Loaded>) {
  const loading = new WeakMap<readonly Bson[], Promise<Loaded>>();
  async function* begin(): AsyncGenerator<readonly Bson[]> {
    for await (const batch of batches) {
      loading.set(batch, awaitLater(load(batch)));
      yield batch;
    }
  }
  return { batches: readAhead(begin()), loadedOf: (batch: readonly Bson[]) => loading.get(batch) ?? load(batch) };
}

/** Sends plain values: at once if they are in memory, else while they are read. */
async function sendValues(
  ctx: RequestContext,
  yieldTurn: YieldTurn,
  element: string,
  { values, batches, next, output, ...envelope }: ValuePage,
): Promise<void> {
  const { format } = output;
  const list = createOutput({ ...envelope, projection: new Projection({ element }), context: undefined }, output);
  for (const value of values ?? []) list.appendValue(value);
  if (batches === undefined) send(ctx.response, 200, format, list.end(next));
  else await writeList(ctx, yieldTurn, { format, list }, batches, async () => (value) => list.appendValue(value));
}
