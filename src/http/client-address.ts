import type { IncomingMessage } from 'node:http';
import ipaddr from 'ipaddr.js';
import { createNetworkFilter } from '../egress/addresses.js';

export type FindClient = (request: Pick<IncomingMessage, 'socket' | 'headers'>) => string | undefined;

/** An address, and what some proxies add to it: a port, and the brackets that IPv6 then has. */
const forwardedAddress = /^(?:\[(.+)\](?::\d+)?|([\d.]+)(?::\d+)?|([^[\]]+))$/;

/**
 * Finds the client behind proxies in `nets` by X-Forwarded-For, to which each proxy appends the address that it serves:
 * the last one that is not of a proxy itself counts. What is before it may be invented.
 */
export function createClientFinder(nets: readonly string[]): FindClient {
  const isTrusted = createNetworkFilter(nets);
  return ({ socket, headers }) => {
    let client = socket.remoteAddress;
    const forwarded = headers['x-forwarded-for'];
    if (forwarded === undefined || client === undefined) return client;
    const hops = [forwarded].flat().join(',').split(',');
    while (isTrusted(client)) {
      const parts = forwardedAddress.exec(hops.pop()?.trim() ?? '') ?? [];
      const hop = parts.slice(1).find((part) => part !== undefined);
      if (hop === undefined || !ipaddr.isValid(hop)) return client;
      client = ipaddr.process(hop).toString();
    }
    return client;
  };
}
