import type { CommandRef } from '../../commands/store.js';
import type { DesiredMessage } from '../../device-state/store.js';
import { coalesce } from '../../lib/coalesce.js';
import { encodeForwarded } from '../connection/encode.js';
import { reasons } from '../connection/reasons.js';
import { formatDeviceTopic, isCovering, parseDeviceTopic } from '../protocol/topics.js';
import { findMatch, type StoredDelivery } from './delivery.js';
import type { DeviceLink } from './device-link.js';
import type { FilterMatch } from './filter-tree.js';
import type { Session } from './session.js';

/** More commands are sent once the client acknowledges. */
const max_unacknowledged = 1000;
/** A client that does not read is disconnected when it is so far behind. */
const max_waiting_bytes = 1024 * 1024;
/** Devices of which the connection remembers what it has sent; of others commands may come again. */
const max_remembered = 10_000;

interface Deps {
  link: DeviceLink;
  session: Session;
  /** Resolves when the message is sent, or the connection has ended. */
  deliver(message: StoredDelivery, match: FilterMatch): Promise<void>;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
}

/** Brings the desired state and the commands of devices to one connection, from what is stored. */
export type DeviceFeed = ReturnType<typeof openDeviceFeed>;

/** Opens the feed of a connection. */
export function openDeviceFeed(deps: Deps) {
  const { link, session, deliver } = deps;
  const { account } = session;
  /** Commands sent on this connection, by device, and how to send the next ones. */
  const sent = new Map<string, { ids: Set<string>; send: () => Promise<void> }>();
  /** The last desired state sent on this connection, by the key of the device. */
  const versions = new Map<string, number>();
  const unacknowledged = new Set<CommandRef>();
  let waiting_bytes = 0;
  /** Commands that are read to be sent. */
  let loading = 0;
  let makeRoom: () => void = () => undefined;
  let room: Promise<void> | undefined;
  /** States are sent one after the other. */
  let stateQueue: Promise<void> = Promise.resolve();

  /** The next connection gets what this one missed. */
  function fail(error: unknown): void {
    deps.failed(error);
    session.end(reasons.busy);
  }

  async function waitForRoom(): Promise<void> {
    while (unacknowledged.size + loading >= max_unacknowledged && session.outbox.isOpen) {
      room ??= new Promise((resolve) => {
        makeRoom = () => {
          room = undefined;
          resolve();
        };
      });
      await Promise.race([room, session.ended]);
    }
  }

  async function publish(
    topic: string,
    json: string,
    options: { retain: boolean; ref?: CommandRef; properties?: Buffer },
  ): Promise<boolean> {
    const { ref, ...rest } = options;
    const match = findMatch(session.subscriptions, topic);
    if (match === undefined || !session.outbox.isOpen) return false;
    if (match.qos > 0 && ref !== undefined) unacknowledged.add(ref);
    const origin = ref && { command: ref };
    await deliver({ topic, payload: Buffer.from(json), qos: 1, origin, ...rest }, match);
    return true;
  }

  /** Reads a command when it can be sent. @returns false if it cannot be sent any more */
  async function sendCommand(device: string, ref: CommandRef): Promise<boolean> {
    loading++;
    try {
      const json = await link.openCommands.loadJson({ account, _id: ref._id });
      if (json === undefined) return true;
      const properties = encodeForwarded(formatDeviceTopic(device, 'commands/result'), Buffer.from(ref.id));
      return await publish(formatDeviceTopic(device, 'commands'), json, { retain: false, ref, properties });
    } finally {
      loading--;
      makeRoom();
    }
  }

  async function sendCommands(device: string, ids: Set<string>): Promise<void> {
    const node = await link.findDevice(account, device);
    if (node === undefined) return;
    const open = (await link.openCommands.findRefs(node)) ?? [];
    const openIds = new Set(open.map(({ id }) => id));
    for (const id of ids) if (!openIds.has(id)) ids.delete(id);
    for (const ref of open) {
      if (ids.has(ref.id)) continue;
      await waitForRoom();
      if (!(await sendCommand(device, ref))) return;
      ids.add(ref.id);
    }
  }

  function wakeCommands(device: string): void {
    let entry = sent.get(device);
    if (entry === undefined) {
      const ids = new Set<string>();
      entry = { ids, send: coalesce(() => sendCommands(device, ids)) };
      sent.set(device, entry);
      forgetOldest(sent);
    }
    entry.send().catch(fail);
  }

  function enqueueState(send: () => Promise<void>): void {
    stateQueue = stateQueue.then(send).catch(fail);
  }

  async function publishState({ device, key, version, json }: DesiredMessage, retain: boolean): Promise<void> {
    const last = versions.get(key) ?? 0;
    if (last >= version && !retain) return;
    versions.set(key, Math.max(version, last));
    forgetOldest(versions);
    await publish(formatDeviceTopic(device, 'state/desired'), json, { retain });
  }

  /** Reads each state when the client has read the one before. */
  async function publishStored(devices: readonly string[]): Promise<void> {
    for (const device of devices) {
      if (!session.outbox.isOpen) return;
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

  function follow(filter: string, watched: Promise<void>): void {
    const { device, channel } = parseDeviceTopic(filter) ?? {};
    const wake = (id: string) => void watched.then(() => wakeCommands(id), fail);
    if (channel === 'commands') wake(device ?? '');
    else if (channel === 'state/desired')
      enqueueState(() => watched.then(() => publishStored(device === undefined ? [] : [device])));
    else if (/[+#]/.test(filter)) followWildcard(filter.split('/'), watched, wake);
  }

  /** Open commands come of the own device only; others when they are queued. */
  function followWildcard(filter: readonly string[], watched: Promise<void>, wake: (id: string) => void): void {
    const covers = (topic: string) => isCovering(filter, topic.split('/'));
    const { permissions } = session;
    if (permissions.kind === 'device' && covers(formatDeviceTopic(permissions.device, 'commands')))
      wake(permissions.device);
    if (filter.length > 3 || (filter.length < 3 && filter.at(-1) !== '#')) return;
    enqueueState(async () => {
      await watched;
      const devices = (await link.desiredStates.list(account)) ?? [];
      await publishStored(devices.filter((device) => covers(formatDeviceTopic(device, 'state/desired'))));
    });
  }

  return {
    /** A filter was granted: what it covers is sent once `watched` resolves, from when on changes are handed in. */
    follow,
    /** Sends the commands of a device that are open and were not sent on this connection. */
    wakeCommands,
    /** Sends a desired state unless a later one was sent. */
    sendState,
    /** The client has acknowledged a command. */
    acknowledge(ref: CommandRef): void {
      unacknowledged.delete(ref);
      makeRoom();
      link.markSent(ref).catch(fail);
    },
    /** Sends again what the filters of the session cover. */
    catchUp(): void {
      for (const filter of session.subscriptions.keys()) follow(filter, Promise.resolve());
    },
    /** Closes the connection: what changes does not reach it. */
    end: () => session.end(reasons.busy),
  };
}

function forgetOldest(remembered: Map<string, unknown>): void {
  const [oldest] = remembered.keys();
  if (remembered.size > max_remembered && oldest !== undefined) remembered.delete(oldest);
}
