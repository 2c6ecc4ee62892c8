import type { Request, Response } from 'express';
import type { AppError } from '../errors.js';
import type { Principal } from '../repositories/api-keys.js';
import type { Values } from '../schema/fields.js';
import type { Operation } from '../schema/operation.js';
import type { Query } from '../schema/validation.js';

/** One request on its way through an operation: everything read and checked once, at the edge. */
export interface RequestContext {
  request: Request;
  response: Response;
  principal: Principal;
  /** The parameters of the path, decoded. Identifiers are checked. */
  path: Readonly<Record<string, string>>;
  query: Query;
  /** The JSON object of the body; empty where the operation takes none. */
  body: Values;
  /** The body as any JSON, for the few operations that take more than an object. */
  json: unknown;
  /** Epoch seconds. */
  now: number;
  /** When it came, in milliseconds of the process. */
  startedAt: number;
}

/** An operation and what serves it. */
export interface Endpoint extends Operation {
  handle(call: RequestContext): Promise<void> | void;
  /** It is asked for so often that `ahead.ts` knows the way. */
  often?: true;
  /** DELETE of what is not beneath a device: an identifier without @ is just not found (contract 4). */
  malformedIdIs404?: true;
}

/** What every answer knows about its request, from the first middleware on. */
export interface Locals {
  request_id: string;
  /** When it came, in milliseconds of the process. */
  begun: number;
  /** Waits for a body; the client's time to send it does not count as ours to answer. */
  awaitBody(body: Promise<Buffer>): Promise<Buffer>;
  principal?: Principal;
  /** What to tell when time runs out, where it is not the database that is waited for. */
  timeoutError?: AppError;
  /** What a 401 says instead of the numbered body. */
  legacy401?: string;
  /** The path is not percent-encoded UTF-8. */
  undecodable?: true;
  /** The path pattern that matched, for metrics. */
  route?: string;
}

export function localsOf(response: Response): Locals {
  return response.locals as Locals;
}

/** `/groups/{group_id_developer}/` below `base` with identifiers percent-encoded, as `Location` shows it. */
export function locationPath(base: string, ...segments: readonly string[]): string {
  return `${base}/${segments.map(encodeURIComponent).join('/')}/`;
}
