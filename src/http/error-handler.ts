import type { ErrorRequestHandler } from 'express';
import type { Log } from '../db/database.js';
import { toAppError } from '../db/driver-errors.js';
import { type AppError, failures } from '../errors.js';
import { createRateLimitedLog } from '../lib/rate-limited-log.js';
import { isPermitted } from '../schema/operation.js';
import { redactUrl } from './access-log.js';
import type { FindClient } from './client-address.js';
import { type Locals, localsOf } from './context.js';
import { sendLegacyText, sendStatus } from './respond.js';

/**
 * Turns every error into a response (reference/errors.md#codes); the only place that does. Every fault of the service (5032) is
 * logged; of a database that is away one line a minute and cause, of refusals one a minute and key.
 */
export function errorHandler(log: Log, findClient: FindClient): ErrorRequestHandler {
  const logFailure = createRateLimitedLog(log, 'error');
  const logRefusal = createRateLimitedLog(log);
  return (error: unknown, request, response, _next) => {
    if (response.destroyed) return;
    const appError = toAppError(error);
    const { code, status, message } = failures[appError.failure];
    const locals = localsOf(response);
    const { request_id } = locals;
    const { method } = request;
    const refusal = nameRefusal(appError, locals);
    const fields = {
      request_id,
      code,
      method,
      path: redactUrl(request.path).slice(0, max_path_length),
      ...appError.logged,
    };
    const logged = { ...fields, err: appError.cause ?? error };
    if (isExpected(appError)) log.debug?.(fields, message);
    else if (refusal !== undefined) {
      const { key_id, account, user = '' } = refusal;
      const ip = findClient(request) ?? '';
      const name = key_id ?? (account === undefined ? ip : `${user}@${account}`);
      logRefusal(`request refused: ${message}`, { ...refusal, ...fields, ip }, name);
    } else if (appError.failure === 'database') logFailure(message, logged);
    else if (appError.failure === 'overloaded') {
      const { account } = locals.principal ?? {};
      logFailure(message, { ...logged, account }, account);
    } else if (status === 503) log.error(logged, message);
    if (response.headersSent) {
      if (!response.writableEnded) response.destroy();
      return;
    }
    locals.cause = refusal ?? appError.logged ?? nameFields(appError);
    if (appError.failure === 'overloaded') response.setHeader('Retry-After', '1');
    const legacyText = locals.match?.endpoint?.legacy?.unauthorized;
    if (appError.failure === 'unauthorized' && legacyText !== undefined) {
      locals.code = code;
      sendLegacyText(response, legacyText, status);
      return;
    }
    sendStatus(response, status, code, message, appError.details);
  };
}

/** Reports whether a failure is a usual answer: a conflict, or parameters whose values are still being read. */
function isExpected({ failure, details }: AppError): boolean {
  return failure === 'conflict' || (failure === 'database' && Object.keys(details).length > 0);
}

/** Names of a refused request; never a key. */
type Refusal = { readonly [name: string]: string | undefined; reason: string };

/** Names whom a request is refused, and why; undefined for other failures, such as of a storage that is not linked. */
function nameRefusal({ failure, details, logged }: AppError, { principal, match }: Locals): Refusal | undefined {
  if (failure === 'unauthorized' && principal === undefined)
    return { reason: String(Object.values(details)[0] ?? 'credentials'), ...logged };
  if (failure !== 'forbidden' && failure !== 'tooMany') return undefined;
  // a token with a claim that is refused has no principal
  if (principal === undefined) return { reason: 'claim', ...logged };
  const { key_id, account, user, scope, limit } = principal;
  const names = { key_id, account, user, scope, ...(limit && { [limit.field]: limit.id_developer }) };
  if (failure === 'tooMany') return { reason: 'rate limit', ...names };
  const isScope = match?.endpoint !== undefined && !isPermitted({ scope }, match.endpoint);
  return { reason: isScope ? 'scope' : 'limit of the key', ...names };
}

const max_path_length = 300;
const max_fields = 20;
const max_name_length = 100;

/** The names of wrong fields or parameters, without values. Clients choose them, so number and length are bounded. */
function nameFields({ failure, details }: AppError): Locals['cause'] {
  if (failure !== 'invalid' && failure !== 'badParameter') return undefined;
  const names = Object.keys(details).slice(0, max_fields);
  return { fields: names.map((name) => name.slice(0, max_name_length)) };
}
