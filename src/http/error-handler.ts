import type { ErrorRequestHandler } from 'express';
import type { Log } from '../db/database.js';
import { toAppError } from '../db/driver-errors.js';
import { AppError, failures } from '../errors.js';
import { redactUrl } from './access-log.js';
import { localsOf } from './context.js';
import { sendLegacyText, sendStatus } from './respond.js';

/** Turns whatever went wrong into a numbered answer (§7, contract 4); the only place that does. */
export function errorHandler(log: Log): ErrorRequestHandler {
  return (error: unknown, request, response, _next) => {
    if (response.destroyed) return;
    const failure = asAppError(error);
    const { code, status, message } = failures[failure.failure];
    if (status === 503) {
      const { request_id } = localsOf(response);
      log.error(
        { request_id, code, method: request.method, path: redactUrl(request.path), err: failure.cause ?? error },
        message,
      );
    }
    if (response.headersSent) {
      if (!response.writableEnded) response.destroy();
      return;
    }
    if (failure.failure === 'overloaded') response.setHeader('Retry-After', '1');
    const { legacy401 } = localsOf(response);
    if (failure.failure === 'unauthorized' && legacy401 !== undefined) {
      sendLegacyText(response, legacy401, status);
      return;
    }
    sendStatus(response, status, code, message, failure.details);
  };
}

function asAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  return (
    toAppError(error) ??
    new AppError('exception', { message: 'the service failed; its log has the request id' }, { cause: error })
  );
}
