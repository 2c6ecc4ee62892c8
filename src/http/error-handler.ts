import type { ErrorRequestHandler } from 'express';
import type { Log } from '../db/database.js';
import { databaseFailure } from '../db/driver-errors.js';
import { AppError, failures } from '../errors.js';
import { loggable } from './access-log.js';
import { localsOf } from './context.js';
import { sendFormer, sendStatus } from './respond.js';

/** Turns whatever went wrong into a numbered answer (§7, contract 4); the only place that does. */
export function answerFailures(log: Log): ErrorRequestHandler {
  return (error: unknown, request, response, _next) => {
    if (response.destroyed) return;
    const failure = numbered(error);
    const { code, status, message } = failures[failure.failure];
    if (status === 503) {
      const { request_id } = localsOf(response);
      log.error(
        { request_id, code, method: request.method, path: loggable(request.path), err: failure.cause ?? error },
        message,
      );
    }
    if (response.headersSent) {
      if (!response.writableEnded) response.destroy();
      return;
    }
    if (failure.failure === 'overloaded') response.setHeader('Retry-After', '1');
    const { unauthorized } = localsOf(response);
    if (failure.failure === 'unauthorized' && unauthorized !== undefined) {
      sendFormer(response, unauthorized, status);
      return;
    }
    sendStatus(response, status, code, message, failure.details);
  };
}

function numbered(error: unknown): AppError {
  if (error instanceof AppError) return error;
  return (
    databaseFailure(error) ??
    new AppError('exception', { message: 'the service failed; its log has the request id' }, { cause: error })
  );
}
