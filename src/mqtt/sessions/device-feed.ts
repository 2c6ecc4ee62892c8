import type { CommandRef } from '../../commands/store.js';
import type { DesiredMessage } from '../../device-state/store.js';
import { coalesce } from '../../lib/coalesce.js';
import type { Release } from '../../lib/shares.js';
import { encodeForwarded } from '../connection/encode.js';
import { reasons } from '../connection/reasons.js';
import { formatDeviceTopic, isCovering, parseDeviceTopic } from '../protocol/topics.js';
import type { BrokerDeps } from './broker-deps.js';
import type { Delivery } from './delivery.js';
import type { Session } from './session.js';
import { findMatch } from './session-filters.js';

/** More commands are sent once the client acknowledges. */
const max_unacknowledged = 1000;
/** Commands, of at most 32 KiB, that are read ahead for a client that reads. */
const max_read_ahead = 16;
/** Memory of a device whose commands wait for the client. */
const waiting_device_bytes = 128;
/** A client that does not read is disconnected when it is so far behind. */
const max_waiting_bytes = 1024 * 1024;
/** Devices of which the connection remembers what it has sent; of others commands may come again. */
const max_remembered = 10_000;

interface Deps extends Pick<BrokerDeps, 'link' | 'messageMemory' | 'rules'> {
  session: Session;
  delivery: Delivery;
  /** Loads a command as its device gets it; undefined if it has ended since. */
  loadCommand(ref: CommandRef): Promise<string | undefined>;
  /** Has the open commands of a device offered to a feed. */
  wakeCommands(device: string, feed: DeviceFeed): void;
}

/** Brings the desired state and the commands of devices to one connection, from what is stored. */
export class DeviceFeed {
  /** Ids of the commands sent on this connection, by device. */
  private readonly sent = new Map<string, Set<string>>();
  /** Open commands that are to be sent, by device, and their memory. */
  private readonly offered = new Map<string, { refs: CommandRef[]; release: Release }>();
  /** The last desired state sent on this connection, by the key of the device. */
  private readonly versions = new Map<string, number>();
  private readonly unacknowledged = new Set<CommandRef>();
  /** The client had no room since commands were read: they may have ended. */
  private areOld = false;
  private waiting_bytes = 0;
  /** States are sent one after the other. */
  private stateQueue: Promise<void> = Promise.resolve();
  private readonly sendOffered = coalesce(() => this.sendWhileRead());

  constructor(private readonly deps: Deps) {}

  /** The connection ends on an error that no caller awaits; the next one gets what this one missed. */
  fail(error: unknown): void {
    this.deps.rules.endFailed(this.deps.session, error);
  }

  /** A filter was granted: what it covers is sent once `watched` resolves, from when on changes are handed in. */
  follow(filter: string, watched: Promise<void>, isRetainedWanted: boolean): void {
    const { device, channel } = parseDeviceTopic(filter) ?? {};
    const offerStates = (find: () => Promise<readonly string[]>) => {
      if (isRetainedWanted) this.enqueueState(() => watched.then(find).then((devices) => this.publishStored(devices)));
    };
    const wake = (id: string) => {
      watched.then(
        () => this.deps.wakeCommands(id, this),
        (error) => this.fail(error),
      );
    };
    if (channel === 'commands') wake(device ?? '');
    else if (channel === 'state/desired') offerStates(async () => (device === undefined ? [] : [device]));
    else if (/[+#]/.test(filter)) this.followWildcard(filter.split('/'), offerStates, wake);
  }

  /** Sends the commands of a device that were not sent on this connection, of all that are open. */
  offerCommands(device: string, open: readonly CommandRef[]): void {
    const { session, messageMemory } = this.deps;
    const before = this.sent.get(device) ?? new Set();
    const openIds = new Set(open.map(({ id }) => id));
    for (const id of before) if (!openIds.has(id)) before.delete(id);
    const refs = open.filter(({ id }) => !before.has(id));
    if (refs.length === 0 || !session.outbox.isOpen()) {
      this.takeBack(device);
      return;
    }
    const release = this.offered.get(device)?.release ?? messageMemory.tryTake(session.account, waiting_device_bytes);
    if (release === undefined) {
      session.end(reasons.quota);
      return;
    }
    this.offered.set(device, { refs, release });
    this.sendSoon();
  }

  /** Sends a desired state unless a later one was sent. */
  sendState(message: DesiredMessage): void {
    this.waiting_bytes += message.json.length;
    if (this.waiting_bytes > max_waiting_bytes) this.deps.session.end(reasons.quota);
    this.enqueueState(() => {
      this.waiting_bytes -= message.json.length;
      return this.publishState(message, false);
    });
  }

  /** The client has acknowledged a command. */
  acknowledge(ref: CommandRef): void {
    this.unacknowledged.delete(ref);
    if (this.offered.size > 0) this.sendSoon();
    this.deps.link.markSent(ref).catch((error) => this.fail(error));
  }

  /** Sends again what the filters of the session cover. */
  catchUp(): void {
    for (const filter of this.deps.session.subscriptions.keys()) this.follow(filter, Promise.resolve(), true);
  }

  /** The connection has ended. */
  close(): void {
    for (const device of this.offered.keys()) this.takeBack(device);
  }

  private async publish(
    topic: string,
    json: string,
    options: { isRetained: boolean; ref?: CommandRef; properties?: Buffer },
  ): Promise<boolean> {
    const { session, delivery } = this.deps;
    const { isRetained, ref, properties } = options;
    const match = findMatch(session.subscriptions, topic);
    if (match === undefined || !session.outbox.isOpen()) return false;
    if (match.qos > 0 && ref !== undefined) this.unacknowledged.add(ref);
    const origin = ref && { command: ref };
    const retain = isRetained || (ref === undefined && match.retain_as_published === true);
    const hasEnded = ref && ((hasWaited: boolean) => this.isOver(ref, hasWaited));
    const message = { topic, payload: Buffer.from(json), qos: 1, origin, properties, retain, hasEnded } as const;
    await delivery.deliverStored(message, match);
    return true;
  }

  private async isOver(ref: CommandRef, hasWaited: boolean): Promise<boolean> {
    const { link, session } = this.deps;
    this.areOld ||= hasWaited;
    // not what was read for all clients a moment ago
    const isOpen = async () => link.openCommands.loadJson({ account: session.account, _id: ref._id });
    if (!this.areOld || (await isOpen()) !== undefined) return false;
    this.unacknowledged.delete(ref);
    return true;
  }

  private takeBack(device: string): void {
    this.offered.get(device)?.release();
    this.offered.delete(device);
  }

  /** Takes commands that the client has room for, the first device's first. */
  private takeOffered(): { device: string; ref: CommandRef }[] {
    const taken: { device: string; ref: CommandRef }[] = [];
    const room = Math.min(max_read_ahead, max_unacknowledged - this.unacknowledged.size);
    for (const [device, { refs }] of this.offered) {
      const ids = this.sent.get(device) ?? new Set();
      this.sent.set(device, ids);
      for (const ref of refs.splice(0, room - taken.length)) {
        ids.add(ref.id);
        taken.push({ device, ref });
      }
      if (refs.length > 0) break;
      this.takeBack(device);
      forgetOldest(this.sent);
    }
    return taken;
  }

  private sendSoon(): void {
    this.sendOffered().catch((error) => this.fail(error));
  }

  private async sendWhileRead(): Promise<void> {
    const { outbox } = this.deps.session;
    while (outbox.isOpen()) {
      // what waits for a client that does not read is not in memory
      await outbox.whenRead();
      const taken = this.takeOffered();
      if (taken.length === 0) return;
      this.areOld = false;
      const texts = await Promise.all(taken.map(({ ref }) => this.deps.loadCommand(ref)));
      for (const [index, { device, ref }] of taken.entries()) await this.sendCommand(device, ref, texts[index]);
    }
  }

  private async sendCommand(device: string, ref: CommandRef, json: string | undefined): Promise<void> {
    if (json === undefined) return;
    const properties = encodeForwarded(formatDeviceTopic(device, 'commands/result'), Buffer.from(ref.id));
    const topic = formatDeviceTopic(device, 'commands');
    const isSent = await this.publish(topic, json, { isRetained: false, ref, properties });
    if (!isSent) this.sent.get(device)?.delete(ref.id);
  }

  private enqueueState(send: () => Promise<void>): void {
    this.stateQueue = this.stateQueue.then(send).catch((error) => this.fail(error));
  }

  private async publishState({ device, key, version, json }: DesiredMessage, isRetained: boolean): Promise<void> {
    const last = this.versions.get(key) ?? 0;
    if (last >= version && !isRetained) return;
    this.versions.set(key, Math.max(version, last));
    forgetOldest(this.versions);
    await this.publish(formatDeviceTopic(device, 'state/desired'), json, { isRetained });
  }

  /** Reads each state when the client has read the one before. */
  private async publishStored(devices: readonly string[]): Promise<void> {
    const { link, session } = this.deps;
    for (const device of devices) {
      if (!session.outbox.isOpen()) return;
      const message = await link.desiredStates.find({ account: session.account, device });
      if (message !== undefined) await this.publishState(message, true);
    }
  }

  /** Open commands come of the own device only; others when they are queued. */
  private followWildcard(
    filter: readonly string[],
    offerStates: (find: () => Promise<readonly string[]>) => void,
    wake: (id: string) => void,
  ): void {
    const { link, session } = this.deps;
    const { permissions, account } = session;
    const covers = (topic: string) => isCovering(filter, topic.split('/'));
    if (permissions.kind === 'device' && covers(formatDeviceTopic(permissions.device, 'commands')))
      wake(permissions.device);
    if (filter.length > 3 || (filter.length < 3 && filter.at(-1) !== '#')) return;
    offerStates(async () => {
      const devices = (await link.desiredStates.list(account)) ?? [];
      return devices.filter((device) => covers(formatDeviceTopic(device, 'state/desired')));
    });
  }
}

function forgetOldest(remembered: Map<string, unknown>): void {
  const [oldest] = remembered.keys();
  if (remembered.size > max_remembered && oldest !== undefined) remembered.delete(oldest);
}
