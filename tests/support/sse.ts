import { issueKey } from '../../src/objects/api-keys.js';
import type { Scope } from '../../src/schema/operation.js';
import type { TestService } from './service.js';

export { type Follower, follow, type Message } from '../../scripts/support/follow.js';

/** Issues a key and returns it, for programs that are no `Api`. */
export async function createKey(
  { db }: TestService,
  { account = 'acme', username = 'alice', scope = 'admin' as Scope, expires_at = undefined as number | undefined } = {},
): Promise<{ id: string; key: string; headers: Record<string, string> }> {
  const wanted = { account, username, scope, ...(expires_at !== undefined && { expires_at }) };
  const issued = await issueKey(db, wanted, 0);
  return { ...issued, headers: { 'service.apikey': issued.key } };
}
