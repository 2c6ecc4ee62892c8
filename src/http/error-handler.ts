import type { ErrorRequestHandler } from 'express';
import type { Log } from '../db/database.js';
import { toAppError } from '../db/driver-errors.js';
import { AppError, failures } from '../errors.js';
import { createRateLimitedLog } from '../lib/rate-limited-log.js';
import { redactUrl } from './access-log.js';
import { type Locals, localsOf } from './context.js';
import { sendLegacyText, sendStatus } from './respond.js';

/**
 * Turns every error into a response (reference/errors.md#codes); the only place that does. Every fault of the service (5032) is
 * logged; of failures that all requests meet, a database that is away or overload, one per second and cause.
 */
export function errorHandler(log: Log): ErrorRequestHandler {
  const logFailure = createRateLimitedLog(log, 'error');
  return (error: unknown, request, response, _next) => {
    if (response.destroyed) return;
    const appError = asAppError(error);
    const { code, status, message } = failures[appError.failure];
    const locals = localsOf(response);
    const { request_id } = locals;
    const { method } = request;
    const fields = { request_id, code, method, path: redactUrl(request.path), ...appError.logged };
    const logged = { ...fields, err: appError.cause ?? error };
    if (isExpected(appError)) log.debug?.(fields, message);
    else if (appError.failure === 'database' || appError.failure === 'overloaded') logFailure(message, logged);
    else if (status === 503) log.error(logged, message);
    if (response.headersSent) {
      if (!response.writableEnded) response.destroy();
      return;
    }
    locals.cause = appError.logged ?? nameFields(appError);
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

const max_fields = 20;
const max_name_length = 100;

/** The names of wrong fields or parameters, without values. Clients choose them, so number and length are bounded. */
function nameFields({ failure, details }: AppError): Locals['cause'] {
  if (failure !== 'invalid' && failure !== 'badParameter') return undefined;
  const names = Object.keys(details).slice(0, max_fields);
  return { fields: names.map((name) => name.slice(0, max_name_length)) };
}

function asAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  return (
    toAppError(error) ??
    new AppError('exception', { message: 'the service failed; its log has the request id' }, { cause: error })
  );
}
