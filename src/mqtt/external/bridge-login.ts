import { createHash } from 'node:crypto';
import type { BridgeConfig } from '../../lib/server-addresses.js';

/** Prefix of client ids that only the bridge may use. */
export const bridge_client_prefix = 'platform-bridge-';

/** Splits RabbitMQ's `vhost:user`; a username without a virtual host uses the shared one. */
export function splitUsername(username: string): { vhost: string | undefined; user: string } {
  const at = username.lastIndexOf(':');
  return { vhost: at < 0 ? undefined : username.slice(0, at), user: username.slice(at + 1) };
}

/**
 * Derives the client id of a bridge login, the same on every instance. It differs per login because RabbitMQ ignores
 * virtual hosts in client ids, and has 23 characters, which every broker accepts.
 */
export function createClientId({ url, username }: BridgeConfig, tag: string): string {
  return bridge_client_prefix + createHash('sha256').update(`${tag} ${username} ${url}`).digest('hex').slice(0, 7);
}
