import type { Database } from '../../db/database.js';
import { deriveId, type Id, readIdTime } from '../../db/ids.js';
import { AppError } from '../../errors.js';
import { createKeyedMutex } from '../../lib/keyed-mutex.js';
import type { LogLine } from '../../lib/rate-limited-log.js';
import type { Ingest } from '../../streams/ingest.js';
import { findStored } from '../../streams/store.js';
import { type Reason, reasons } from '../connection/reasons.js';
import type { SessionAuthorizer } from '../login/session-authorizer.js';
import { findSharedFilter, hasTooManyLevels, isServiceTopic, parseDeviceTopic } from '../protocol/topics.js';
import { type DeviceLink, ingestDeviceMessage } from './device-link.js';
import { type Drop, type DropReason, describeDrop, ingestPublish, type Message, type PublishResult } from './ingest.js';
import { formatName, redactTopic } from './login-names.js';
import { canPublish, canSubscribe, isFilter, type TopicPermissions } from './permissions.js';
import type { Session } from './session.js';

/** A message of a client that may have been stored before. */
export interface RepeatedMessage extends Message {
  /** Names a message that may be repeated: its streams get ids that derive from it. */
  id: Id | undefined;
  /** Streams that are stored already are not stored again. */
  isRepeated: boolean;
  isWill: boolean;
  /** Names the command of a result that has no `id`. */
  correlation_data?: Buffer | undefined;
}

/** The session of a dropped message, or what is known without one. */
type Sender = Session | { account: string; client_id?: string | undefined; permissions?: TopicPermissions | undefined };

interface RulesOptions {
  db: Database;
  ingest: Ingest;
  link: DeviceLink;
  metrics: { dropped(reason: DropReason, field?: string): void; published(): void };
  /** Epoch milliseconds. */
  clock: () => number;
  warn: LogLine;
  authorizer: SessionAuthorizer;
}

/** Clocks of instances, and of this one before and after it was set, differ by less. */
const max_clock_difference_s = 3600;

/** Stores streams with ids that derive from that of their message; those of a repeated one that are stored are left out. */
async function ingestOnce(
  db: Database,
  ingest: Ingest,
  submission: Parameters<Ingest>[0],
  { id, isRepeated, isWill }: Omit<RepeatedMessage, keyof Message>,
): Promise<unknown> {
  const job = { ...submission, isWill };
  if (id === undefined) return ingest(job);
  const entries = job.entries.map((entry, index) => ({ ...entry, message: deriveId(id, index) }));
  if (!isRepeated) return ingest({ ...job, entries });
  const received_from = Math.min(readIdTime(id) / 1000, job.now) - max_clock_difference_s;
  const stored = await findStored(db, job.account, entries, received_from);
  const missing = entries.filter(({ message }) => !stored.has(String(message)));
  return missing.length > 0 ? ingest({ ...job, entries: missing }) : undefined;
}

/** Decisions about the messages of all sessions of a process, which are counted and logged. */
export class Rules {
  private readonly mutex = createKeyedMutex();

  constructor(private readonly options: RulesOptions) {}

  /** Stores the streams that a message holds; reports of a device are merged in their order. Never rejects. */
  publish(session: Session, message: RepeatedMessage): Promise<PublishResult> {
    const publish = () => this.publishAllowed(session, message);
    const { topic } = message;
    return parseDeviceTopic(topic) === undefined ? publish() : this.mutex(`${session.account} ${topic}`, publish);
  }

  /** Stores what a message to a topic of a device holds. */
  ingestMessage(
    { account, permissions }: Pick<Session, 'account' | 'permissions'>,
    message: RepeatedMessage,
  ): Promise<PublishResult> {
    const { db, ingest, link, clock } = this.options;
    const now = clock() / 1000;
    const publish = { ...message, account, permissions, now };
    if (parseDeviceTopic(message.topic) === undefined)
      return ingestPublish((job) => ingestOnce(db, ingest, job, message), publish);
    return ingestDeviceMessage(db, link, { ...publish, now: Math.floor(now) });
  }

  /** Decides about filters. @returns a reason code for each that is refused, undefined for the others */
  async findRefusals(session: Session, filters: readonly string[]): Promise<readonly (Reason | undefined)[]> {
    const { authorizer } = this.options;
    const isServed = (filter: string) => {
      const shared = findSharedFilter(filter);
      // feeds bring state and commands to each client
      return shared === undefined || (session.connect.level === 5 && !isServiceTopic(shared.replace(/^\+/, '@')));
    };
    const isGranted = (filter: string) => isServed(filter) && canSubscribe(session.permissions, filter);
    try {
      await authorizer.allows(session, () => filters.every(isGranted));
      return filters.map((filter) => {
        if (!session.revoked && authorizer.isFresh(session) && isGranted(filter)) return undefined;
        this.refuseSubscription(session, filter, 'not allowed');
        return isFilter(filter) ? reasons.not_authorized : reasons.invalid_filter;
      });
    } catch (error) {
      for (const filter of filters) this.refuseSubscription(session, filter, 'unavailable', error);
      return filters.map(() => reasons.unspecified);
    }
  }

  /** Reports a filter that is not granted. */
  refuseSubscription(session: Session, filter: string, reason: string, err?: unknown): void {
    const { names, permissions } = session;
    const fields = { reason, topic: redactTopic(filter, permissions), ...names, ...(err !== undefined && { err }) };
    const name = err === undefined ? formatName(names) : '';
    this.options.warn(`MQTT subscription refused: ${reason}`, fields, name);
  }

  /** Reports whether the permissions of a session were read a moment ago. */
  isFresh(session: Session): boolean {
    return this.options.authorizer.isFresh(session);
  }

  /** Counts and reports a message that is not stored, or not delivered to a session. */
  dropped(sender: Sender, dropped: Drop, sentTopic?: string): void {
    const { metrics, warn } = this.options;
    const { drop, field, fault, error } = dropped;
    metrics.dropped(drop, field);
    if ('counts' in sender) sender.counts.drops++;
    const { permissions, ...source } = sender;
    const names = 'counts' in sender ? sender.names : source;
    const topic = sentTopic && redactTopic(sentTopic, permissions);
    const fields = { ...names, ...(topic && { topic }), ...(fault !== undefined && { fault }) };
    const err = error instanceof AppError ? (error.cause ?? error) : error;
    // an outage drops the messages of all clients at once
    const name = drop === 'database' ? '' : formatName(names);
    warn(`MQTT message dropped: ${describeDrop(dropped)}`, { ...fields, ...(err !== undefined && { err }) }, name);
  }

  /** Reports a packet that closes the connection. */
  protocolError({ names }: Session, reason: string): void {
    this.options.warn(`MQTT connection closed: ${reason}`, { reason, ...names }, formatName(names));
  }

  /** Reports an error that no caller awaits. */
  readonly failed = (error: unknown): void => this.options.warn('MQTT broker failed', { err: error });

  /** Reports such an error, and ends the connection that it is about: the next one gets what this one has missed. */
  endFailed(session: Session, error: unknown): void {
    this.failed(error);
    session.end(reasons.busy);
  }

  private async publishAllowed(session: Session, message: RepeatedMessage): Promise<PublishResult> {
    const { metrics, authorizer } = this.options;
    try {
      if (hasTooManyLevels(message.topic))
        return { drop: 'invalid', field: 'topic', fault: 'must have at most 100 levels' };
      if (!(await authorizer.allows(session, ({ permissions }) => canPublish(permissions, message.topic))))
        return { drop: 'not_allowed' };
      const published = await this.ingestMessage(session, message);
      if (!('drop' in published)) {
        metrics.published();
        session.counts.messages++;
      }
      return published;
    } catch (error) {
      return { drop: 'database', error };
    }
  }
}
