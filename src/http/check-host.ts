import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';

/** A host with an optional port (RFC 9110 §7.2); an IPv6 address is in brackets. */
const hostPattern = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::\d{0,5})?$/i;

/** Rejects a request with several `Host` headers, an invalid one or none (4004), which proxies may read differently. */
export const checkHost: RequestHandler = ({ rawHeaders, headers, httpVersion }, _response, next) => {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at];
    if (name?.length === 4 && name.toLowerCase() === 'host') count++;
  }
  if (count > 1) throw new AppError('badParameter', { host: 'must be given once' });
  if (count === 0 && httpVersion === '1.1') throw new AppError('badParameter', { host: 'is required' });
  if (!hostPattern.test(headers.host ?? '')) throw new AppError('badParameter', { host: 'must be a host name' });
  next();
};
