import type { Database } from '../../db/database.js';
import { awaitLater } from '../../lib/promises.js';
import type { WillPacket } from '../connection/packets.js';
import { joinKey } from '../store/keys.js';
import { optionsOf } from '../store/messages.js';
import { type StoredWill, saveWill, withdrawWill } from '../store/wills.js';
import { canPublish, type LoggedIn, type TopicPermissions } from './permissions.js';

/** Owner of the will. */
interface WillOwner extends LoggedIn {
  client_id: string;
  expiry_s: number;
}

/** The seconds that the will of a session waits. */
export function findDelay(will: WillPacket, { expiry_s }: Pick<WillOwner, 'expiry_s'>): number {
  return Math.min(will.properties.will_delay_s ?? 0, expiry_s);
}

/** The last will of a connection. While other instances may have to publish it, it is in the database. */
export class SessionWill {
  private stored: Promise<void> | undefined;
  private taken: Promise<boolean> | undefined;

  constructor(
    private readonly db: Database,
    private readonly connection: string,
    private readonly will: WillPacket | undefined,
  ) {}

  /** Stores the will, if there is one, for other instances. */
  async store(owner: WillOwner, instance: string): Promise<void> {
    const described = this.describe(owner, instance);
    if (described === undefined || this.taken !== undefined) return;
    this.stored = awaitLater(saveWill(this.db, described));
    await this.stored;
  }

  /** Takes the will back. @returns false if another instance has taken it to publish it */
  take(): Promise<boolean> {
    if (this.stored === undefined) return Promise.resolve(true);
    const withdraw = () => withdrawWill(this.db, this.connection);
    this.taken ??= awaitLater(this.stored.then(withdraw, withdraw));
    return this.taken;
  }

  /** Stores the will of a connection that has ended, so that any instance publishes it once it is due. */
  async defer(owner: WillOwner, due_at: Date): Promise<void> {
    const described = this.describe(owner, '');
    if (described !== undefined) await saveWill(this.db, { ...described, due_at });
  }

  /** @returns undefined if there is none that may be published */
  private describe(owned: WillOwner, instance: string): StoredWill | undefined {
    const { connection: _id, will } = this;
    const { account, owner, permissions, client_id } = owned;
    const topic = will && willTopic(permissions, will.topic);
    if (will === undefined || topic === undefined) return undefined;
    const { payload, qos, retain, properties } = will;
    const { forwarded, message_expiry_s } = properties;
    const delay_s = findDelay(will, owned);
    return {
      ...{ _id, instance, account, owner, topic, payload, qos, retain },
      ...optionsOf({ properties: forwarded }),
      ...(message_expiry_s !== undefined && { message_expiry_s }),
      ...(delay_s > 0 && { delay_s, session: joinKey(account, client_id) }),
    };
  }
}

/** Replaces the key in the topic of an API key's will. @returns undefined if the will may not be published */
function willTopic(permissions: TopicPermissions, topic: string): string | undefined {
  if (permissions.kind === 'device') return topic;
  return canPublish(permissions, topic) ? `key${topic.slice(topic.indexOf('/'))}` : undefined;
}
