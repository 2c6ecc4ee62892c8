import type { Client } from 'aedes';

const max_packet_id = 65_535;

/** aedes copies the properties of a packet, and sends none to clients of MQTT 3.1.1. */
interface IdentifiedPacket {
  properties?: { correlationData?: unknown };
}

/** Names a message, so that its delivery finds it in the queues of sessions; '' if it is in none. */
export function setMessageId(packet: object, id: string): void {
  if (id === '') return;
  (packet as IdentifiedPacket).properties = { correlationData: id };
}

/** @returns undefined for a message that is in no queue */
export function messageIdOf(packet: object): string | undefined {
  const id = (packet as IdentifiedPacket).properties?.correlationData;
  return typeof id === 'string' ? id : undefined;
}

/** Takes the packet id that aedes would give its next message to the client. */
export function takePacketId(client: Client): number {
  const counter = client as unknown as { _nextId: number };
  const { _nextId: packet_id } = counter;
  counter._nextId = packet_id >= max_packet_id ? 1 : packet_id + 1;
  return packet_id;
}
