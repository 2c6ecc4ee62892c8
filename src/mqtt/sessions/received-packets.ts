import type { Id } from '../../db/ids.js';
import { PacketError, reasons } from '../connection/reasons.js';
import { joinKey } from '../store/keys.js';
import type { ReceivedChange, StoredPacket } from '../store/queue.js';

const max_received = 100;

interface ReceivedPacket {
  /** Names the message, also when it is repeated after a restart of the service. */
  message: Id;
  /** It was sent on this connection. */
  isOwn: boolean;
  /** The message is stored. */
  isDone: boolean;
}

/** The packet ids of a persistent session in the database. */
export interface StoredPackets {
  session: string;
  packets: readonly StoredPacket[];
  /** Queues a change; resolves when it is durable. */
  submit(change: ReceivedChange): Promise<void>;
}

/** The packet ids of QoS 2 that a client has not released: a repeated message is stored once (MQTT 3.1.1 §4.3.3). */
export type ReceivedPackets = ReturnType<typeof createReceivedPackets>;

/** Creates the packet ids of a connection; those of a persistent session are kept in the database. */
export function createReceivedPackets(newId: () => Id, stored?: StoredPackets) {
  const packets = new Map<number, ReceivedPacket>();
  const submit = async (packet_id: number, createChange: (_id: string) => ReceivedChange) => {
    if (stored !== undefined) await stored.submit(createChange(joinKey(stored.session, packet_id)));
  };
  for (const { packet_id, message, done } of stored?.packets ?? [])
    packets.set(packet_id, { message, isOwn: false, isDone: done });

  return {
    /**
     * Records the packet id durably before its message is stored. @returns whether an earlier connection has sent the message,
     * which may be stored in part, and whether it only has to be acknowledged. @throws PacketError beyond 100 packet ids
     */
    async receive(packet_id: number) {
      const known = packets.get(packet_id);
      if (known !== undefined) {
        const { message, isOwn, isDone } = known;
        known.isOwn = true;
        // acknowledgements are in order: that of the first one comes before
        return { message, isRepeated: true, isDone: isOwn || isDone };
      }
      if (packets.size >= max_received)
        throw new PacketError(`more than ${max_received} messages of QoS 2 wait for PUBREL`, reasons.receive_maximum);
      const message = newId();
      packets.set(packet_id, { message, isOwn: true, isDone: false });
      await submit(packet_id, (_id) => ({ _id, packet_id, message, done: false, at: new Date() }));
      return { message, isRepeated: false, isDone: false };
    },
    /** Records that the message is stored. */
    async finish(packet_id: number): Promise<void> {
      const packet = packets.get(packet_id);
      if (packet === undefined || packet.isDone) return;
      await submit(packet_id, (_id) => ({ _id, done: true }));
      packet.isDone = true;
    },
    /** Forgets a packet id. @returns whether it was known */
    async release(packet_id: number): Promise<boolean> {
      const isKnown = packets.delete(packet_id);
      await submit(packet_id, (_id) => ({ _id, released: true }));
      return isKnown;
    },
  };
}
