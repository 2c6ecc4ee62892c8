import { coalesce } from '../lib/coalesce.js';
import {
  Connection,
  type Host,
  type Published,
  receive_maximum,
  topic_alias_maximum,
  type Unacknowledged,
} from './connection/connection.js';
import { type ConnackProperties, encodeConnack } from './connection/encode.js';
import { type FrameError, packet_limit_bytes } from './connection/frames.js';
import { Input } from './connection/input.js';
import type { DisconnectPacket, PublishPacket, SubscribePacket } from './connection/packets.js';
import { PacketError, reasons } from './connection/reasons.js';
import type { ConnectRequest } from './protocol/connect-packet.js';
import type { PublishHandler } from './publish-handler.js';
import type { ClaimedSession } from './sessions/account-sessions.js';
import type { BrokerDeps } from './sessions/broker-deps.js';
import { Delivery, type Origin } from './sessions/delivery.js';
import { DeviceFeed } from './sessions/device-feed.js';
import type { Session } from './sessions/session.js';
import { isOfQueue, SessionQueue } from './sessions/session-queue.js';
import type { SessionRecord } from './sessions/session-records.js';
import { type SubscriptionDeps, Subscriptions } from './sessions/subscriptions.js';
import { findDelay } from './sessions/wills.js';
import type { SharedMessage } from './store/messages.js';
import { session_ttl_s } from './store/sessions.js';

/** Versions before 5 name no receive maximum. */
const default_receive_maximum = 10_000;

/** State that the clients of an account share. */
export interface ClientDeps extends BrokerDeps, SubscriptionDeps {
  /** Clients of this process by client id. */
  clients: Map<string, Delivery>;
  publishHandler: PublishHandler;
  /** Stores the subscriptions of a session, which may get a queue by them. @throws what the database throws */
  saveSubscriptions(session: Session, onQueue: (record: SessionRecord) => void): Promise<void>;
  /** Gives a message to other members of its shared subscriptions. @throws what the database throws */
  redeliver(message: SharedMessage): Promise<void>;
}

/** A client that is logged in: connects the protocol of its connection with the broker of its account. */
export class Client implements Host<Origin> {
  private readonly connection: Connection<Origin>;
  private readonly delivery: Delivery;
  private readonly subscriptions: Subscriptions;
  private input: Input | undefined;
  private received_at = performance.now();
  private silence: NodeJS.Timeout | undefined;
  private hasDisconnected = false;

  constructor(
    private readonly session: Session,
    private readonly deps: ClientDeps,
  ) {
    const { level, properties } = session.connect;
    const limits = {
      level,
      receive_maximum: properties.receive_maximum ?? default_receive_maximum,
      max_packet_bytes: properties.max_packet_bytes ?? Number.POSITIVE_INFINITY,
      topic_alias_maximum: properties.topic_alias_maximum ?? 0,
      wants_problem_information: properties.wants_problem_information !== 0,
    };
    this.connection = new Connection<Origin>(limits, this);
    this.delivery = new Delivery(session, this.connection, deps);
    const openQueue = (record: SessionRecord) => this.openQueue(record, { wasCut: false, isNew: true });
    const save = coalesce(() => deps.saveSubscriptions(session, openQueue));
    this.subscriptions = new Subscriptions(session, this.delivery, deps, () => this.openFeed(), save);
  }

  /** Opens the queue of a persistent session, and grants again what it has subscribed to. */
  async resume({ record, wasCut }: ClaimedSession, sentIds: readonly number[]): Promise<void> {
    const { subscriptions } = record.state;
    this.connection.reserve(sentIds);
    this.openQueue(record, { wasCut, isNew: false });
    if (subscriptions.length > 0) await this.subscriptions.restore(subscriptions);
  }

  /** Sends CONNACK, and handles what the client has sent and sends from now on. */
  start({ stream, input: pending }: ConnectRequest, isPresent: boolean): void {
    const { session, delivery, deps } = this;
    const { outbox, connect } = session;
    const { max_packet_bytes = Number.POSITIVE_INFINITY } = connect.properties;
    const connack = encodeConnack(isPresent, connect.level === 5 ? describeBroker(session) : undefined);
    if (connack.length > max_packet_bytes) session.end(reasons.too_large);
    if (!outbox.isOpen()) return;
    session.isConnected = true;
    outbox.push(connack);
    session.endWill = () => this.endWill();
    session.leave = (reason) => this.leave(() => session.end(reason));
    outbox.ended.then(() => this.close(), deps.rules.failed);
    deps.clients.set(session.client_id, delivery);
    this.subscriptions.start();
    const { rules, peers } = deps;
    delivery.deliverQueue(() => peers.waitUntilRead()).catch((error: unknown) => rules.endFailed(session, error));
    this.input = new Input(stream, {
      shares: deps.messageMemory,
      sender: session,
      handle: (packet) => {
        this.received_at = performance.now();
        return this.connection.handle(packet);
      },
      onError: (error) => this.endMalformed(error),
      onLeft: () => this.leave(() => outbox.close()),
    });
    this.watchSilence();
    this.input.start(pending.release());
  }

  write(bytes: Buffer): void {
    this.session.outbox.push(bytes);
  }

  publish(packet: PublishPacket): Promise<Published> {
    return this.deps.publishHandler.handle(this.session, packet);
  }

  async release(packet_id: number): Promise<boolean> {
    return (await this.endUnlessStored(() => this.session.received?.release(packet_id))) ?? false;
  }

  subscribe(packet: SubscribePacket, granted: (codes: readonly number[]) => void): Promise<void> {
    return this.subscriptions.subscribe(packet, granted);
  }

  unsubscribe(filters: readonly string[]): Promise<readonly number[]> {
    return this.subscriptions.unsubscribe(filters);
  }

  async received(packet_id: number, { origin }: Unacknowledged<Origin>): Promise<void> {
    if (isOfQueue(origin)) await this.endUnlessStored(() => this.session.queue?.receive(origin, packet_id));
  }

  acknowledged({ origin }: Unacknowledged<Origin>): void {
    if (isOfQueue(origin)) this.session.queue?.remove(origin);
    else if (origin !== undefined && 'command' in origin) this.subscriptions.acknowledge(origin.command);
  }

  hasRoom(): void {
    this.delivery.onRoom();
  }

  disconnect({ reason, properties: { session_expiry_s } }: DisconnectPacket): void {
    const { session } = this;
    if (session_expiry_s !== undefined) {
      if (session.expiry_s === 0 && session_expiry_s > 0)
        throw new PacketError('a session without expiry gets one', reasons.protocol_error);
      session.expiry_s = Math.min(session_expiry_s, session_ttl_s);
    }
    this.hasDisconnected = reason === reasons.success;
    this.leave(() => session.outbox.close());
  }

  fail({ message, reason }: PacketError): void {
    this.deps.rules.protocolError(this.session, message);
    this.session.leave(reason);
  }

  private endMalformed(error: FrameError): void {
    const { session, deps } = this;
    if (error === 'too_large') deps.rules.dropped(session, { drop: error });
    else deps.rules.protocolError(session, error);
    session.leave(error === 'too_large' ? reasons.too_large : reasons.malformed);
  }

  /** The client sends PUBREC and PUBREL again on its next connection, and would wait for an answer on this one. */
  private async endUnlessStored<Result>(store: () => Promise<Result> | undefined): Promise<Result | undefined> {
    try {
      return await store();
    } catch (error) {
      this.deps.rules.endFailed(this.session, error);
      throw error;
    }
  }

  private openQueue(record: SessionRecord, state: { wasCut: boolean; isNew: boolean }): void {
    const { db, writer, rules } = this.deps;
    const unacknowledged = () => this.connection.unacknowledged();
    this.session.queue = new SessionQueue({ db, writer, failed: rules.failed, record, unacknowledged, ...state });
  }

  private openFeed(): DeviceFeed {
    const { session, delivery, deps } = this;
    const { load: loadCommand, wake } = deps.deviceFeeds.commands;
    const { link, messageMemory, rules } = deps;
    const wakeCommands = (device: string, feed: DeviceFeed) => wake(device, { feed });
    return new DeviceFeed({ link, messageMemory, rules, session, delivery, loadCommand, wakeCommands });
  }

  /** Ends the connection once the messages so far are stored, handed to the subscribers and acknowledged. */
  private leave(end: () => void): void {
    this.delivery.stop();
    const flush = () => void this.session.outbox.flush().then(end, end);
    if (this.input === undefined) flush();
    else this.input.stop(flush);
  }

  private watchSilence(): void {
    const { session } = this;
    const { keep_alive_s } = session.connect;
    if (keep_alive_s === 0) return;
    const limit_ms = keep_alive_s * 1500;
    const check = () => {
      const rest_ms = limit_ms - (performance.now() - this.received_at);
      if (rest_ms <= 0) session.end(reasons.keep_alive);
      else this.silence = setTimeout(check, rest_ms).unref();
    };
    this.silence = setTimeout(check, limit_ms).unref();
  }

  private async endWill(): Promise<void> {
    const { session, deps } = this;
    const { will } = session.connect;
    const isOwn = await session.will.take();
    if (!isOwn || this.hasDisconnected || will === undefined || deps.stopped.aborted) return;
    const delay_s = findDelay(will, session);
    if (delay_s === 0 || session.revoked)
      return void deps.publishHandler.handle(session, will).catch(deps.rules.failed);
    const due_at = new Date(deps.clock() + delay_s * 1000);
    await session.will.defer(session, due_at);
    deps.onWillDeferred(due_at);
  }

  private close(): void {
    const { session, delivery, deps } = this;
    delivery.stop();
    clearTimeout(this.silence);
    this.subscriptions.close();
    if (deps.clients.get(session.client_id) === delivery) deps.clients.delete(session.client_id);
    this.input?.close();
  }
}

/** The broker and the session as a CONNACK of MQTT 5 describes them. */
function describeBroker({ client_id, connection, expiry_s, connect }: Session): ConnackProperties {
  return {
    receive_maximum,
    max_packet_bytes: packet_limit_bytes,
    topic_alias_maximum,
    assigned_client_id: client_id === connection ? client_id : undefined,
    session_expiry_s: (connect.properties.session_expiry_s ?? 0) > expiry_s ? expiry_s : undefined,
  };
}
