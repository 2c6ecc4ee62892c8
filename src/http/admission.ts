import { randomUUID } from 'node:crypto';
import type { RequestHandler, Response } from 'express';
import { AppError } from '../errors.js';
import { createShares, type Release, type Shares } from '../lib/shares.js';
import { createCloseSignal, createSlotClient } from './close-signal.js';
import { type Locals, localsOf, type RequestContext } from './context.js';

/** Leaves time to send the response within 5 s (reference/requests.md#time-limits). */
const default_answer_limit_ms = 4500;
/** Requests in work at once, in one process. Health, readiness and metrics need no slot. */
const max_in_flight = 1000;
/** Costly requests in work: the answer of each can hold 2 MiB while its client does not read. */
const max_costly_in_flight = 256;
/** Costly requests of one account that wait. */
const max_waiting_costly = 200;
const max_authenticating = 1000;
/** Bytes of bodies in work at once, in one process. */
const max_body_bytes = 64 * 1024 * 1024;

type Requester = Pick<RequestContext, 'account' | 'response'>;

export type Admission = ReturnType<typeof createAdmission>;

/**
 * Creates the limits of what a process works on at once; whatever exceeds one is 5033 (reference/requests.md#time-limits).
 * @param answer_limit_ms time after which a request is answered 5031
 */
export function createAdmission(answer_limit_ms = default_answer_limit_ms) {
  const slots = createShares({ capacity: max_in_flight });
  const costlySlots = createShares({ capacity: max_costly_in_flight, max_waiting: max_waiting_costly });
  // the account is not known yet
  const lookups = createShares({ capacity: max_authenticating, max_per_account: max_authenticating });
  const bodies = createShares({ capacity: max_body_bytes });
  return {
    begin: createBegin(answer_limit_ms),
    /** Bounds the requests whose key is being looked up. @throws AppError overloaded (5033) */
    authenticating: <T>(work: () => Promise<T>) => lookups.run('', work),
    /** Runs `work` in one of the slots of the account; those of costly operations are fewer. @throws AppError overloaded (5033) */
    inSlot: <T>(requester: Requester, isCostly: boolean, work: () => Promise<T>) =>
      isCostly ? runInShare(costlySlots, requester, work) : slots.run(requester.account, work),
    /** Bytes held for an account. */
    reserve: bodies.reserve,
  };
}

const waitedInVain = new AppError('overloaded');

/** Runs work with a slot of a pool. @param work gets the signal of a client that leaves @throws AppError overloaded (5033) */
export function runInShare<T>(
  shares: Shares,
  requester: Requester,
  work: (left: AbortSignal) => Promise<T>,
): Promise<T> {
  const caller = callerOf(requester);
  return shares.run(requester.account, () => work(caller.signal), caller);
}

/** Waits for a storage or a receiver. A request that times out before is answered with `message` (5032). */
export async function awaitServer<T>(response: Response, message: string, work: () => Promise<T>): Promise<T> {
  const locals = localsOf(response);
  locals.timeoutError = new AppError('exception', { message });
  try {
    return await work();
  } finally {
    locals.timeoutError = undefined;
  }
}

/** Waits for a part of a pool. @throws AppError overloaded (5033) */
export function takeShare(shares: Shares, requester: Requester, amount: number): Promise<Release> {
  return shares.acquire(requester.account, { amount, ...callerOf(requester) });
}

/** Describes a request to a pool: its client, its key, and the signal that its client has left. */
export function callerOf({ response }: Pick<Requester, 'response'>) {
  const locals = localsOf(response);
  const { principal } = locals;
  locals.client ??= createSlotClient(response);
  locals.key ??= principal?.key_id ?? principal?.user;
  locals.left ??= createCloseSignal(response);
  return { caller: locals, signal: locals.left };
}

/**
 * Gives each request its id and answers when time runs out: 5033 while it waits for its turn, and to a read that has mostly
 * waited, else 5031, unless `timeoutError` says otherwise. A change in progress is not 5033, which clients repeat.
 */
const createBegin =
  (answer_limit_ms: number): RequestHandler =>
  (request, response, next) => {
    let isReceiving = false;
    const onTimeout = () => {
      if (isReceiving || response.headersSent) return;
      if (locals.answerAtLimit !== undefined) return locals.answerAtLimit();
      const hasMostlyWaited = request.method === 'GET' && locals.waited_ms > answer_limit_ms / 2;
      const error = locals.waiting > 0 || hasMostlyWaited ? waitedInVain : locals.timeoutError;
      const cause = new Error(`not answered in time; waited ${Math.round(locals.waited_ms)} ms for its turns`);
      next(error ?? new AppError('database', {}, { cause }));
    };
    const timer = setTimeout(onTimeout, answer_limit_ms);
    // not in the literal: V8 allocates closures in a property assignment in old space, which keeps the request until a full GC
    const awaitBody = async <Result>(receive: () => Promise<Result>) => {
      isReceiving = true;
      const received = await receive();
      isReceiving = false;
      // starts it again if it has fired, but not if it was cleared
      timer.refresh();
      return received;
    };
    // a new object: Express' own is a hash table, which is slower and grows several times
    const locals: Locals = {
      request_id: randomUUID(),
      started_at_ms: performance.now(),
      awaitBody,
      waiting: 0,
      waited_ms: 0,
    };
    response.locals = locals;
    response.setHeader('X-Request-Id', locals.request_id);
    response.once('close', () => clearTimeout(timer));
    next();
  };
