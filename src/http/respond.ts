import { hash } from 'node:crypto';
import { once } from 'node:events';
import type { Response } from 'express';
import type { Database } from '../db/database.js';
import type { Bson, Page } from '../repositories/resources.js';
import { modelsOf } from '../repositories/resources.js';
import type { Values } from '../schema/fields.js';
import type { ListedType } from '../schema/resource.js';
import { getNumber } from '../serialize/bson.js';
import { toXml } from '../serialize/plain-xml.js';
import { openList, printObject, printStatus } from '../serialize/printer.js';
import { type ProjectionContext, projectionOf } from '../serialize/projections.js';
import type { RequestContext } from './context.js';
import { wantsXml } from './negotiate.js';
import { createYieldQueue } from './yield-queue.js';

const types = { json: 'application/json; charset=utf-8', xml: 'application/xml; charset=utf-8' } as const;

export type Format = keyof typeof types;

export function formatOf(response: Response): Format {
  return wantsXml(response.req.headers.accept) ? 'xml' : 'json';
}

/** Bytes of an answer that are copied rather than written apart from its head. */
const single_write_limit_bytes = 4096;

function send(response: Response, status: number, format: Format, body: Buffer): void {
  response.statusCode = status;
  response.setHeader('Content-Type', types[format]);
  response.setHeader('Content-Length', body.length);
  varyByAccept(response);
  if (body.length > single_write_limit_bytes) response.end(body);
  else response.end(body.toString('latin1'), 'latin1');
}

function varyByAccept(response: Response): void {
  const others = response.getHeader('Vary');
  response.setHeader('Vary', others === undefined ? 'Accept' : `${others}, Accept`);
}

/** `{code, message, details}` (§7); `details` as plain values. */
export function sendStatus(
  response: Response,
  status: number,
  code: number,
  message: string,
  details: object = {},
): void {
  const format = formatOf(response);
  const body = { code, message, details };
  send(response, status, format, Buffer.from(format === 'xml' ? toXml('response', body) : JSON.stringify(body)));
}

/** Any plain value under the root `root`; `member` names what a list at its top holds. */
export function sendPlain(response: Response, root: string, value: object, member?: string): void {
  const format = formatOf(response);
  send(response, 200, format, Buffer.from(format === 'xml' ? toXml(root, value, member) : JSON.stringify(value)));
}

/** `{"response": text}`, letter for letter as firmware of the former platform compares it (contract 8). */
export function sendLegacyText(response: Response, text: string, status = 200): void {
  const format = formatOf(response);
  const json = `{"response": ${JSON.stringify(text)}}`;
  send(response, status, format, Buffer.from(format === 'xml' ? toXml('response', { response: text }) : json));
}

/** How objects of one type go out, in both formats and with their entity tags (contract 4). */
export interface Responder {
  object(call: RequestContext, document: Bson): Promise<void>;
  /** 200 / 2005 with the object as details. */
  updated(call: RequestContext, document: Bson, message: string): Promise<void>;
  /** 201 / 2001 with the object as details. */
  created(call: RequestContext, document: Bson, message: string): Promise<void>;
  /** `parameters` asks for metadata about the request (contract 8). */
  list(call: RequestContext, page: Page, parameters?: Values): Promise<void>;
}

/** 200 with a status body and empty details. */
export function sendSuccess({ response }: RequestContext, code: number, message: string): void {
  sendStatus(response, 200, code, message);
}

/** What `printStatus` prints, around an object that is printed already. */
function jsonStatus(head: { code: number; message: string }, object: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${JSON.stringify(head).slice(0, -1)},"details":`), object, Buffer.from('}')]);
}

/** What is printed in one turn of the event loop. */
const chunk_bytes = 128 * 1024;
/** Documents that are printed without waiting for a turn. */
const yield_threshold = 100;
const flush_threshold_bytes = 4 * 1024 * 1024;

export function createResponder(db: Database, listed: ListedType, { tagged = true, digested = false } = {}): Responder {
  const view = projectionOf(listed);
  const listView = projectionOf(listed, 'list');
  const turn = db.once('turns', createYieldQueue);

  /** Sets the entity tag: the version, and for what changes without one a digest of the object as it is shown. */
  function tag(response: Response, document: Bson, shown: () => Buffer): void {
    if (!tagged) return;
    const digest = digested ? `.${digestOf(shown())}` : '';
    response.setHeader('ETag', `"${getNumber(document, 'version') ?? 0}${digest}"`);
  }

  async function contextOf({ principal, now }: RequestContext, documents: readonly Bson[]): Promise<ProjectionContext> {
    return { now, modelProperties: await modelsOf(db, listed, principal.account, documents) };
  }

  async function withDetails(
    call: RequestContext,
    document: Bson,
    status: number,
    code: number,
    message: string,
  ): Promise<void> {
    const { response } = call;
    const context = await contextOf(call, [document]);
    const format = formatOf(response);
    const head = { code, message };
    if (format === 'json') {
      const object = printObject(document, view, format, context);
      tag(response, document, () => object);
      send(response, status, format, jsonStatus(head, object));
      return;
    }
    tag(response, document, () => printObject(document, view, format, context));
    send(response, status, format, printStatus(head, document, view, format, context));
  }

  return {
    async object(call, document) {
      const { request, response } = call;
      const context = await contextOf(call, [document]);
      const format = formatOf(response);
      const body = printObject(document, view, format, context);
      tag(response, document, () => body);
      if (notModified(request.headers['if-none-match'], response.getHeader('ETag'))) {
        varyByAccept(response);
        response.status(304).end();
        return;
      }
      send(response, 200, format, body);
    },
    updated: (call, document, message) => withDetails(call, document, 200, 2005, message),
    created: (call, document, message) => withDetails(call, document, 201, 2001, message),
    async list(call, { total_documents, batches }, parameters) {
      const { response, now } = call;
      const format = formatOf(response);
      const context: ProjectionContext = { now, modelProperties: new Map() };
      const printer = openList(listView, format, context);
      const parts: Buffer[] = parameters === undefined ? [printer.header(total_documents)] : [];
      const metadata = new PageMetadata();
      let waiting_bytes = 0;
      for await (const batch of batches) {
        if (batch.length > yield_threshold) await turn();
        context.modelProperties = (await contextOf(call, batch)).modelProperties;
        metadata.note(batch);
        for (const document of batch) {
          printer.append(document);
          if (printer.size < chunk_bytes) continue;
          await turn();
          waiting_bytes += printer.size;
          parts.push(printer.take());
          // metadata is known last and stands first, so with it a page is held whole
          if (waiting_bytes < flush_threshold_bytes || parameters !== undefined) continue;
          await writeWithBackpressure(response, format, Buffer.concat(parts.splice(0)));
          waiting_bytes = 0;
        }
      }
      parts.push(printer.footer());
      if (parameters !== undefined)
        parts.unshift(printer.header(total_documents, metadata.of(parameters, call.startedAt)));
      if (response.headersSent) response.end(Buffer.concat(parts));
      else send(response, 200, format, Buffer.concat(parts));
    },
  };
}

/** What `_m=1` tells about a page of streams (contract 8). */
class PageMetadata {
  #returned = 0;
  #at_first: number | null = null;
  #at_last: number | null = null;

  note(batch: readonly Bson[]): void {
    const [first, last] = [batch[0], batch.at(-1)];
    if (first === undefined || last === undefined) return;
    if (this.#returned === 0) this.#at_first = getNumber(first, 'at') ?? null;
    this.#at_last = getNumber(last, 'at') ?? null;
    this.#returned += batch.length;
  }

  of(parameters: Values, begun: number): object {
    const took_ms = Math.round(performance.now() - begun);
    return { parameters, returned: this.#returned, took_ms, at_first: this.#at_first, at_last: this.#at_last };
  }
}

/** Writes a part of an answer too large to be held, no faster than the client reads. */
async function writeWithBackpressure(response: Response, format: Format, part: Buffer): Promise<void> {
  if (!response.headersSent) {
    response.setHeader('Content-Type', types[format]);
    varyByAccept(response);
  }
  if (response.destroyed) throw new Error('the client is gone');
  if (response.write(part)) return;
  const settled = new AbortController();
  await Promise.race(['drain', 'close'].map((event) => once(response, event, { signal: settled.signal })));
  settled.abort();
}

/** `If-None-Match` against our tag, compared weakly (RFC 9110 §13.1.2). */
export function notModified(header: string | undefined, tag: unknown): boolean {
  if (header === undefined || tag === undefined) return false;
  return header.split(',').some((given) => given.trim() === '*' || given.trim().replace(/^W\//, '') === tag);
}

function digestOf(bytes: Buffer): string {
  return hash('sha1', bytes, 'base64url');
}
