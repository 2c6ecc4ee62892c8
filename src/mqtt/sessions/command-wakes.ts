import { setImmediate as nextTurn } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { CommandRef } from '../../commands/store.js';
import type { Id } from '../../db/ids.js';
import { coalesce } from '../../lib/coalesce.js';
import { awaitLater, getOrStart } from '../../lib/promises.js';
import type { DeviceFeed } from './device-feed.js';
import type { DeviceLink } from './device-link.js';

/** Reason to read the open commands of a device. */
interface Wake {
  /** Internal id of the device; absent where only its identifier is known. */
  parent: Id | undefined;
  /** A command was queued: all feeds that follow the device get it. */
  isForAll: boolean;
  /** Feeds that ask for what is open. */
  requesting: Set<DeviceFeed>;
}

/** Devices whose commands are read together. */
const max_devices = 1000;
/** Feeds that are offered commands in one turn of the event loop. */
const offers_per_turn = 500;
/** Commands that are kept for a moment after they were read, for the other clients that get them. */
const max_kept = 64;
const kept_ms = 1000;

/** Reads commands once for all feeds of an account. */
export type CommandWakes = ReturnType<typeof createCommandWakes>;

/** Creates the reader of commands of an account. @param followersOf finds the feeds that follow the commands of a device */
export function createCommandWakes(
  account: string,
  { findDevice, openCommands }: Pick<DeviceLink, 'findDevice' | 'openCommands'>,
  followersOf: (device: string) => Iterable<DeviceFeed>,
) {
  const woken = new Map<string, Wake>();
  const kept = new LRUCache<string, Promise<string | undefined>>({ max: max_kept, ttl: kept_ms, ttlAutopurge: true });

  async function findOpen(device: string, parent: Id | undefined): Promise<readonly CommandRef[]> {
    const _id = parent ?? (await findDevice(account, device))?._id;
    return (_id && (await openCommands.findRefs({ account, _id }))) ?? [];
  }

  const readWoken = coalesce(async () => {
    while (woken.size > 0) {
      const wakes = [...woken].slice(0, max_devices);
      for (const [device] of wakes) woken.delete(device);
      const found = await Promise.allSettled(wakes.map(([device, { parent }]) => findOpen(device, parent)));
      let offers = 0;
      for (const [index, [device, { isForAll, requesting }]] of wakes.entries()) {
        const open = found[index];
        for (const feed of isForAll ? new Set([...requesting, ...followersOf(device)]) : requesting) {
          offers++;
          if (open?.status === 'fulfilled') feed.offerCommands(device, open.value);
          else feed.fail(open?.reason);
        }
        if (offers < offers_per_turn) continue;
        offers = 0;
        await nextTurn();
      }
    }
  });

  return {
    /** Has the open commands of a device offered to a feed, to all that follow it if there is none. */
    wake(device: string, { parent, feed }: { parent?: Id; feed?: DeviceFeed }): void {
      const wake = woken.get(device) ?? { parent: undefined, isForAll: false, requesting: new Set() };
      if (feed === undefined) Object.assign(wake, { parent, isForAll: true });
      else wake.requesting.add(feed);
      woken.set(device, wake);
      // feeds get what fails
      awaitLater(readWoken());
    },
    /** Loads a command as its device gets it, as a rule once for all feeds; undefined if it has ended since. */
    load({ _id, id }: CommandRef): Promise<string | undefined> {
      return getOrStart(kept, id, () => openCommands.loadJson({ account, _id }));
    },
  };
}
