import type { Request, Response } from 'express';
import type { AppError } from '../errors.js';
import type { Caller } from '../lib/shares.js';
import type { Principal } from '../objects/api-keys.js';
import type { OperationContext, Store } from '../objects/context.js';
import type { Bson, Page } from '../objects/page.js';
import type { Values } from '../schema/fields.js';
import type { RequestedOutput } from '../schema/list-parameters.js';
import type { Operation, Success } from '../schema/operation.js';
import type { Query } from '../schema/query.js';
import type { YieldTurn } from './yield-queue.js';

/** A request to an endpoint, parsed and checked. */
export interface RequestContext extends OperationContext {
  request: Request;
  response: Response;
  principal: Principal;
  /** Decoded path parameters; identifiers are checked. */
  path: Readonly<Record<string, string>>;
  query: Query;
  /** The JSON object of the body; empty if the operation takes none, or other JSON too. */
  body: Values;
  /**
   * Takes the JSON of an operation that accepts more than objects, once: it needs many times the memory of its text, and
   * is not to be kept while the database works.
   */
  takeJson(): unknown;
  /** Time of arrival in milliseconds of the process. */
  started_at_ms: number;
}

/** The answer of an operation, which `dispatch.ts` sends as the operation declares. */
export interface Answer {
  /** Details of a status, or the value of a plain result. */
  details?: object;
  /** A stored object: the response, or the details of a status. */
  document?: Bson;
  page?: Page;
  /** Format and members of `page`, or the members of `document`; absent: all members, in JSON or XML. */
  output?: RequestedOutput | undefined;
  values?: ValuePage;
  /** Segments of the path of what was created. */
  location?: readonly string[];
  /** Another success than the declared one. */
  result?: Success;
}

/** A list of plain values: held in memory, or read in batches. */
export interface ValuePage {
  total_documents: number;
  metadata?: object;
  values?: readonly object[];
  batches?: AsyncIterable<readonly object[]>;
  next?: string | undefined;
  output: RequestedOutput;
}

export interface Endpoint extends Operation {
  /** Returns the answer, or nothing if it has sent one by itself. A status without details needs no answer. */
  handle(ctx: RequestContext): Promise<Answer | undefined> | Promise<void> | Answer;
}

/** The result of matching a path: an endpoint, or only the methods that the path has. */
export interface Match {
  /** Undefined if the path does not have the method. */
  endpoint: Endpoint | undefined;
  /** Value of the `Allow` header. */
  allow: string;
  params: Readonly<Record<string, string>>;
  /** A parameter is not percent-encoded UTF-8; reported after 4051 and 4031 (reference/requests.md#order-of-checks). */
  isUndecodable: boolean;
}

export interface EndpointDeps {
  store: Store;
  /** Path part of {base_url}. */
  base_path: string;
  yieldTurn: YieldTurn;
}

/** State of a request that middleware and endpoints share, from the first middleware on. */
export interface Locals extends Caller {
  request_id: string;
  /** Time of arrival in milliseconds of the process. */
  started_at_ms: number;
  /** Waits for a body without counting the time of the upload towards the time limit. */
  awaitBody<Result>(receive: () => Promise<Result>): Promise<Result>;
  /** Time in milliseconds of the process at which the headers of a live feed were sent; the metrics count up to it. */
  answered_at_ms?: number;
  /** Application code of the response, for the access log and the metrics. */
  code?: number;
  /** Members of the access line in JSON about a failure. */
  cause?: Readonly<Record<string, unknown>> | undefined;
  principal?: Principal;
  /** The key came in a header that only programs of the former platform use (reference/access.md#former-clients). */
  isFormerClient?: boolean;
  /** The body may take as long as something moves, as that of an import. */
  isUnlimitedUpload?: boolean;
  /** A CORS preflight request of an allowed origin. */
  isPreflight?: boolean;
  /** Sends the answer at the time limit, if nothing that the client could notice is left to be done. */
  answerAtLimit?: () => void;
  /** Error to send on timeout, if something other than the database is being waited for. */
  timeoutError?: AppError | undefined;
  match?: Match | undefined;
  /** Path pattern, for metrics. */
  route?: string;
}

/** @returns the shared state of a request */
export function localsOf(response: Response): Locals {
  return response.locals as Locals;
}

/** Builds `/groups/{group_id_developer}/` below `base` with percent-encoded identifiers, as `Location` shows it. */
export function buildLocationPath(base: string, segments: readonly string[]): string {
  return `${base}/${segments.map(encodeURIComponent).join('/')}/`;
}
