import type { CommandRef } from '../../commands/store.js';
import type { DesiredMessage } from '../../device-state/store.js';
import { coalesce } from '../../lib/coalesce.js';
import type { Release, Shares } from '../../lib/shares.js';
import { encodeForwarded } from '../connection/encode.js';
import { reasons } from '../connection/reasons.js';
import { formatDeviceTopic, isCovering, parseDeviceTopic } from '../protocol/topics.js';
import type { StoredDelivery } from './delivery.js';
import type { DeviceLink } from './device-link.js';
import type { FilterMatch } from './filter-tree.js';
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

interface Deps {
  link: DeviceLink;
  session: Session;
  messageMemory: Shares;
  /** Loads a command as its device gets it; undefined if it has ended since. */
  loadCommand(ref: CommandRef): Promise<string | undefined>;
  /** Resolves when the message is sent, or the connection has ended. */
  deliver(message: StoredDelivery, match: FilterMatch): Promise<void>;
  /** Has the open commands of a device offered. */
  wakeCommands(device: string): void;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
}

/** Brings the desired state and the commands of devices to one connection, from what is stored. */
export type DeviceFeed = ReturnType<typeof openDeviceFeed>;

/** Opens the feed of a connection. */
export function openDeviceFeed(deps: Deps) {
  const { link, session, deliver, messageMemory } = deps;
  const { account } = session;
  /** Ids of the commands sent on this connection, by device. */
  const sent = new Map<string, Set<string>>();
  /** Open commands that are to be sent, by device, and their memory. */
  const offered = new Map<string, { refs: CommandRef[]; release: Release }>();
  /** The last desired state sent on this connection, by the key of the device. */
  const versions = new Map<string, number>();
  const unacknowledged = new Set<CommandRef>();
  /** The client had no room since commands were read: they may have ended. */
  let areOld = false;
  let waiting_bytes = 0;
  /** States are sent one after the other. */
  let stateQueue: Promise<void> = Promise.resolve();

  /** The next connection gets what this one missed. */
  function fail(error: unknown): void {
    deps.failed(error);
    session.end(reasons.busy);
  }

  async function publish(
    topic: string,
    json: string,
    options: { isRetained: boolean; ref?: CommandRef; properties?: Buffer },
  ): Promise<boolean> {
    const { isRetained, ref, properties } = options;
    const match = findMatch(session.subscriptions, topic);
    if (match === undefined || !session.outbox.isOpen()) return false;
    if (match.qos > 0 && ref !== undefined) unacknowledged.add(ref);
    const origin = ref && { command: ref };
    const retain = isRetained || (ref === undefined && match.retain_as_published === true);
    const hasEnded = ref && ((hasWaited: boolean) => isOver(ref, hasWaited));
    await deliver({ topic, payload: Buffer.from(json), qos: 1, origin, properties, retain, hasEnded }, match);
    return true;
  }

  async function isOver(ref: CommandRef, hasWaited: boolean): Promise<boolean> {
    areOld ||= hasWaited;
    // not what was read for all clients a moment ago
    if (!areOld || (await link.openCommands.loadJson({ account, _id: ref._id })) !== undefined) return false;
    unacknowledged.delete(ref);
    return true;
  }

  function takeBack(device: string): void {
    offered.get(device)?.release();
    offered.delete(device);
  }

  /** Takes commands that the client has room for, the first device's first. */
  function takeOffered(): { device: string; ref: CommandRef }[] {
    const taken: { device: string; ref: CommandRef }[] = [];
    const room = Math.min(max_read_ahead, max_unacknowledged - unacknowledged.size);
    for (const [device, { refs }] of offered) {
      const ids = sent.get(device) ?? new Set();
      sent.set(device, ids);
      for (const ref of refs.splice(0, room - taken.length)) {
        ids.add(ref.id);
        taken.push({ device, ref });
      }
      if (refs.length > 0) break;
      takeBack(device);
      forgetOldest(sent);
    }
    return taken;
  }

  async function sendCommand(device: string, ref: CommandRef, json: string | undefined): Promise<void> {
    if (json === undefined) return;
    const properties = encodeForwarded(formatDeviceTopic(device, 'commands/result'), Buffer.from(ref.id));
    const isSent = await publish(formatDeviceTopic(device, 'commands'), json, { isRetained: false, ref, properties });
    if (!isSent) sent.get(device)?.delete(ref.id);
  }

  const sendOffered = coalesce(async () => {
    while (session.outbox.isOpen()) {
      // what waits for a client that does not read is not in memory
      await session.outbox.whenRead();
      const taken = takeOffered();
      if (taken.length === 0) return;
      areOld = false;
      const texts = await Promise.all(taken.map(({ ref }) => deps.loadCommand(ref)));
      for (const [index, { device, ref }] of taken.entries()) await sendCommand(device, ref, texts[index]);
    }
  });

  function enqueueState(send: () => Promise<void>): void {
    stateQueue = stateQueue.then(send).catch(fail);
  }

  async function publishState({ device, key, version, json }: DesiredMessage, isRetained: boolean): Promise<void> {
    const last = versions.get(key) ?? 0;
    if (last >= version && !isRetained) return;
    versions.set(key, Math.max(version, last));
    forgetOldest(versions);
    await publish(formatDeviceTopic(device, 'state/desired'), json, { isRetained });
  }

  /** Reads each state when the client has read the one before. */
  async function publishStored(devices: readonly string[]): Promise<void> {
    for (const device of devices) {
      if (!session.outbox.isOpen()) return;
      const message = await link.desiredStates.find({ account, device });
      if (message !== undefined) await publishState(message, true);
    }
  }

  function sendState(message: DesiredMessage): void {
    waiting_bytes += message.json.length;
    if (waiting_bytes > max_waiting_bytes) session.end(reasons.quota);
    enqueueState(() => {
      waiting_bytes -= message.json.length;
      return publishState(message, false);
    });
  }

  function follow(filter: string, watched: Promise<void>, isRetainedWanted: boolean): void {
    const { device, channel } = parseDeviceTopic(filter) ?? {};
    const offerStates = (find: () => Promise<readonly string[]>) => {
      if (isRetainedWanted) enqueueState(() => watched.then(find).then(publishStored));
    };
    const wake = (id: string) => void watched.then(() => deps.wakeCommands(id), fail);
    if (channel === 'commands') wake(device ?? '');
    else if (channel === 'state/desired') offerStates(async () => (device === undefined ? [] : [device]));
    else if (/[+#]/.test(filter)) followWildcard(filter.split('/'), offerStates, wake);
  }

  /** Open commands come of the own device only; others when they are queued. */
  function followWildcard(
    filter: readonly string[],
    offerStates: (find: () => Promise<readonly string[]>) => void,
    wake: (id: string) => void,
  ): void {
    const covers = (topic: string) => isCovering(filter, topic.split('/'));
    const { permissions } = session;
    if (permissions.kind === 'device' && covers(formatDeviceTopic(permissions.device, 'commands')))
      wake(permissions.device);
    if (filter.length > 3 || (filter.length < 3 && filter.at(-1) !== '#')) return;
    offerStates(async () => {
      const devices = (await link.desiredStates.list(account)) ?? [];
      return devices.filter((device) => covers(formatDeviceTopic(device, 'state/desired')));
    });
  }

  return {
    /** A filter was granted: what it covers is sent once `watched` resolves, from when on changes are handed in. */
    follow,
    /** Sends the commands of a device that were not sent on this connection, of all that are open. */
    offerCommands(device: string, open: readonly CommandRef[]): void {
      const before = sent.get(device) ?? new Set();
      const openIds = new Set(open.map(({ id }) => id));
      for (const id of before) if (!openIds.has(id)) before.delete(id);
      const refs = open.filter(({ id }) => !before.has(id));
      if (refs.length === 0 || !session.outbox.isOpen()) {
        takeBack(device);
        return;
      }
      const release = offered.get(device)?.release ?? messageMemory.tryTake(account, waiting_device_bytes);
      if (release === undefined) {
        session.end(reasons.quota);
        return;
      }
      offered.set(device, { refs, release });
      sendOffered().catch(fail);
    },
    fail,
    /** Sends a desired state unless a later one was sent. */
    sendState,
    /** The client has acknowledged a command. */
    acknowledge(ref: CommandRef): void {
      unacknowledged.delete(ref);
      if (offered.size > 0) sendOffered().catch(fail);
      link.markSent(ref).catch(fail);
    },
    /** Sends again what the filters of the session cover. */
    catchUp(): void {
      for (const filter of session.subscriptions.keys()) follow(filter, Promise.resolve(), true);
    },
    /** The connection has ended. */
    close(): void {
      for (const device of offered.keys()) takeBack(device);
    },
  };
}

function forgetOldest(remembered: Map<string, unknown>): void {
  const [oldest] = remembered.keys();
  if (remembered.size > max_remembered && oldest !== undefined) remembered.delete(oldest);
}
