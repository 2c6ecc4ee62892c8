import type { Database } from '../../db/database.js';
import { awaitLater } from '../../lib/promises.js';
import type { WillPacket } from '../connection/packets.js';
import { canPublish, type TopicPermissions } from '../login/permissions.js';
import { saveWill, withdrawWill } from '../store/wills.js';

/** Owner of the will. */
interface WillOwner {
  account: string;
  owner: string;
  permissions: TopicPermissions;
}

/** The last will of a connection. While other instances may have to publish it, it is in the database. */
export interface SessionWill {
  /** Stores the will, if there is one, for other instances. */
  store(owner: WillOwner, instance: string): Promise<void>;
  /** Takes the will back. @returns false if another instance has taken it to publish it */
  take(): Promise<boolean>;
}

/** Creates the will of a connection that is not stored. */
export function createWill(db: Database, connection: string, will: WillPacket | undefined): SessionWill {
  let stored: Promise<void> | undefined;
  let taken: Promise<boolean> | undefined;

  async function take(): Promise<boolean> {
    await stored?.catch(() => undefined);
    return withdrawWill(db, connection);
  }

  return {
    async store({ account, owner, permissions }, instance) {
      const topic = will && willTopic(permissions, will.topic);
      if (will === undefined || topic === undefined || taken !== undefined) return;
      const { payload, qos, retain } = will;
      stored = awaitLater(saveWill(db, { _id: connection, instance, account, owner, topic, payload, qos, retain }));
      await stored;
    },
    take() {
      if (stored === undefined) return Promise.resolve(true);
      taken ??= awaitLater(take());
      return taken;
    },
  };
}

/** Replaces the key in the topic of an API key's will. @returns undefined if the will may not be published */
function willTopic(permissions: TopicPermissions, topic: string): string | undefined {
  if (permissions.kind === 'device') return topic;
  return canPublish(permissions, topic) ? `key${topic.slice(topic.indexOf('/'))}` : undefined;
}
