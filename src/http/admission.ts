import { randomUUID } from 'node:crypto';
import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import type { Locals } from './context.js';

/** Leaves time to send the response within 5 s (reference/requests.md#time-limits). */
const answer_limit_ms = 4500;
/** Requests in work at once, in one process. Health, readiness and metrics need no slot. */
const max_in_flight = 1000;
/** Slots that one account may hold, so that others always get some. */
const max_in_flight_per_account = 500;
const max_authenticating = 1000;
/** Bytes of bodies in work at once, in one process. */
const max_body_bytes = 64 * 1024 * 1024;
const max_body_bytes_per_account = 32 * 1024 * 1024;

/** Limits what a process works on at once; whatever exceeds a limit is 5033 (reference/requests.md#time-limits). */
export interface Admission {
  /** Gives each request its id and answers 5031 when time runs out, unless `timeoutError` says otherwise. */
  begin: RequestHandler;
  /** Bounds the requests whose key is being looked up. @throws AppError overloaded (5033) */
  authenticating<T>(work: () => Promise<T>): Promise<T>;
  /** Runs `work` in one of the slots of the account. @throws AppError overloaded (5033) */
  inSlot<T>(account: string, work: () => Promise<T>): Promise<T>;
  /** Bytes held for an account. */
  reserve(account: string): Reservation;
}

/** A growing share of the memory budget. */
export interface Reservation {
  /** @throws AppError overloaded (5033) beyond the budget of the process or the share of the account */
  add(bytes: number): void;
  release(): void;
}

/** Creates the limits of one process. */
export function createAdmission(): Admission {
  const slots = createQuota(max_in_flight, max_in_flight_per_account);
  const lookups = createQuota(max_authenticating, max_authenticating);
  const bodies = createQuota(max_body_bytes, max_body_bytes_per_account);
  return {
    begin: beginRequest,
    authenticating: (work) => withQuota(lookups, '', work),
    inSlot: (account, work) => withQuota(slots, account, work),
    reserve(account) {
      let held_bytes = 0;
      return {
        add(bytes) {
          bodies.take(account, bytes);
          held_bytes += bytes;
        },
        release() {
          bodies.give(account, held_bytes);
          held_bytes = 0;
        },
      };
    },
  };
}

const beginRequest: RequestHandler = (_request, response, next) => {
  let isReceiving = false;
  const onTimeout = () => {
    if (isReceiving || response.headersSent) return;
    next(locals.timeoutError ?? new AppError('database', {}, { cause: new Error('not answered in time') }));
  };
  const timer = setTimeout(onTimeout, answer_limit_ms);
  // not in the literal: V8 allocates closures in a property assignment in old space, which keeps the request until a full GC
  const awaitBody = async (body: Promise<Buffer>) => {
    isReceiving = true;
    const received = await body;
    isReceiving = false;
    // starts it again if it has fired, but not if it was cleared
    timer.refresh();
    return received;
  };
  // a new object: Express' own is a hash table, which is slower and grows several times
  const locals: Locals = { request_id: randomUUID(), started_at_ms: performance.now(), awaitBody };
  response.locals = locals;
  response.setHeader('X-Request-Id', locals.request_id);
  response.once('close', () => clearTimeout(timer));
  next();
};

interface Quota {
  /** @throws AppError overloaded (5033) */
  take(account: string, amount: number): void;
  give(account: string, amount: number): void;
}

function createQuota(max: number, max_per_account: number): Quota {
  const usedByAccount = new Map<string, number>();
  let used = 0;
  return {
    take(account, amount) {
      const usedHere = (usedByAccount.get(account) ?? 0) + amount;
      if (used + amount > max || usedHere > max_per_account) throw new AppError('overloaded');
      used += amount;
      usedByAccount.set(account, usedHere);
    },
    give(account, amount) {
      const left = (usedByAccount.get(account) ?? 0) - amount;
      used -= amount;
      if (left > 0) usedByAccount.set(account, left);
      else usedByAccount.delete(account);
    },
  };
}

async function withQuota<T>(quota: Quota, account: string, work: () => Promise<T>): Promise<T> {
  quota.take(account, 1);
  try {
    return await work();
  } finally {
    quota.give(account, 1);
  }
}
