import { coalesce } from '../lib/coalesce.js';
import type { AccountBrokers } from './account-broker.js';
import { findWillPermissions } from './login/login.js';
import type { BrokerDeps } from './sessions/broker-deps.js';
import type { PublishResult } from './sessions/ingest.js';
import { isRegistered } from './store/instances.js';
import { optionsOf } from './store/messages.js';
import { deleteWill, findDueWills, takeWill, type WillRef } from './store/wills.js';

/** A will that waits longer may be a recheck late. */
const max_timer_ms = 86_400_000;

/** Publishes wills of the database: those with a delay, and those that killed instances have left. */
export class DueWills {
  /** Publishes the wills that are due; concurrent calls share a run. @throws what the database throws */
  readonly publish = coalesce(() => this.publishAll());

  constructor(
    private readonly deps: BrokerDeps,
    private readonly brokers: AccountBrokers,
  ) {}

  /** Publishes wills at their time. The recheck finds those of sessions that end sooner, and of lost instances. */
  publishAt(due_at: Date): void {
    const { clock, rules, stopped } = this.deps;
    const wait_ms = due_at.getTime() - clock();
    if (wait_ms > max_timer_ms) return;
    const publish = () => {
      if (!stopped.aborted) this.publish().catch(rules.failed);
    };
    // a timer may fire a little before its time by the clock
    setTimeout(publish, wait_ms + 10).unref();
  }

  private async publishAll(): Promise<void> {
    const { db, clock } = this.deps;
    for (const will of await findDueWills(db, new Date(clock()))) await this.publishWill(will);
  }

  /**
   * Publishes a will that is due, unless another instance has taken it, and deletes it only then: should this instance be
   * killed, another one publishes it again.
   */
  private async publishWill(due: WillRef): Promise<void> {
    const { db, clock, rules, peers } = this.deps;
    const { taken_by: former } = due;
    if (former !== undefined && former !== peers.id && (await isRegistered(db, former))) return;
    const will = await takeWill(db, due, peers.id);
    if (will === undefined) return;
    const { account, topic, payload, qos, retain, properties, message_expiry_s, message: id } = will;
    const permissions = await findWillPermissions(db, will, clock() / 1000);
    const message = { topic, payload, id, isRepeated: former !== undefined, isWill: true };
    const published: PublishResult =
      permissions === undefined
        ? { drop: 'not_allowed' }
        : await rules.ingestMessage({ account, permissions }, message);
    if ('drop' in published) {
      if (published.drop === 'database') throw published.error;
      rules.dropped({ account, permissions }, published, topic);
    } else {
      const messages = published.forward === 'itself' ? [{ topic, payload }] : published.forward;
      const broker = await this.brokers.of(account);
      const expires_at = message_expiry_s === undefined ? undefined : new Date(clock() + message_expiry_s * 1000);
      const options = { qos, retain, ...optionsOf({ properties, expires_at }) };
      for (const [index, message] of messages.entries())
        await broker.publish({ ...message, ...options }, () => `${id} ${index}`);
    }
    await deleteWill(db, will._id);
  }
}
