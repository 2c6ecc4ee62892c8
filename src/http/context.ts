import type { Request, Response } from 'express';
import type { AppError } from '../errors.js';
import type { Principal } from '../repositories/api-keys.js';
import type { OperationContext, Store } from '../repositories/context.js';
import type { Values } from '../schema/fields.js';
import type { Operation } from '../schema/operation.js';
import type { Query } from '../schema/validation.js';
import type { YieldTurn } from './yield-queue.js';

/** One request to an endpoint: everything read and checked once, at the edge. */
export interface RequestContext extends OperationContext {
  request: Request;
  response: Response;
  principal: Principal;
  /** Path parameters, decoded; identifiers are checked. */
  path: Readonly<Record<string, string>>;
  query: Query;
  /** The JSON object of the body; empty where the operation takes none. */
  body: Values;
  /** The body as any JSON, for the few operations that take more than an object. */
  json: unknown;
  /** Time of arrival in milliseconds of the process. */
  started_at_ms: number;
}

/** An operation and the function that serves it. */
export interface Endpoint extends Operation {
  handle(ctx: RequestContext): Promise<void> | void;
  /** An identifier without `@` in the path is 4041 instead of 4004 (contract 4). */
  malformedIdIs404?: boolean;
}

/** The result of matching a path: an endpoint, or only the methods that the path has. */
export interface Match {
  /** Undefined where the path has no such method. */
  endpoint: Endpoint | undefined;
  /** Value of the `Allow` header. */
  allow: string;
  params: Readonly<Record<string, string>>;
  /** A parameter is not percent-encoded UTF-8; the endpoint's own checks come first (contract 4). */
  isUndecodable: boolean;
}

/** Dependencies of all endpoint factories. */
export interface EndpointDeps {
  store: Store;
  /** Path part of {base_url}. */
  base_path: string;
  yieldTurn: YieldTurn;
}

/** State of a request that middleware and endpoints share, from the first middleware on. */
export interface Locals {
  request_id: string;
  /** Time of arrival in milliseconds of the process. */
  started_at_ms: number;
  /** Waits for a body; the time a client takes to send it does not count against the time to answer. */
  awaitBody(body: Promise<Buffer>): Promise<Buffer>;
  /** The application code of the answer, for the access log and the metrics. */
  code?: number;
  principal?: Principal;
  /** Error to send on timeout, if something other than the database is being waited for. */
  timeoutError?: AppError;
  /** The route that matched, if any. */
  match?: Match | undefined;
  /** Path pattern, for metrics. */
  route?: string;
}

/** @returns the shared state of a request */
export function localsOf(response: Response): Locals {
  return response.locals as Locals;
}

/** Builds `/groups/{group_id_developer}/` below `base` with percent-encoded identifiers, as `Location` shows it. */
export function locationPath(base: string, ...segments: readonly string[]): string {
  return `${base}/${segments.map(encodeURIComponent).join('/')}/`;
}
