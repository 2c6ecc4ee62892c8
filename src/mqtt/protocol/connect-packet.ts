import type { Duplex } from 'node:stream';
import { generate, type IConnectPacket, type Packet, parser } from 'mqtt-packet';
import { closeGently, createPacketSplitter } from './packet-limits.js';
import { findProtocolError, readProtocolVersion } from './packet-validation.js';
import { holdInput, type PendingInput } from './pending-input.js';

const connect_limit_ms = 10_000;
const connect_type = 0x10;
/** Set in the level by bridges of mosquitto. */
const bridge_flag = 0x80;
/** The level of each protocol name that is served. */
const servedLevels: ReadonlyMap<string, number> = new Map([
  ['MQIsdp', 3],
  ['MQTT', 4],
]);

/** The CONNECT packet of a connection that waits for its login. */
export interface ConnectRequest {
  packet: IConnectPacket;
  input: PendingInput;
}

/** A CONNECT packet of a protocol level that is not served. */
export interface UnsupportedConnect {
  unsupported_level: number;
}

/**
 * Reads the CONNECT packet; what follows is kept in `input`.
 * @param reserve reserves memory for the next bytes, or returns false
 * @throws Error for any other packet, one too large, malformed, or not complete within 10 s
 */
export function readConnect(
  stream: Duplex,
  reserve: (bytes: number) => boolean,
): Promise<ConnectRequest | UnsupportedConnect> {
  return new Promise((resolve, reject) => {
    const split = createPacketSplitter();
    const chunks: Buffer[] = [];
    const fail = (reason: string) => {
      detach();
      reject(new Error(reason));
    };
    const onClosed = () => fail('closed');
    const timer = setTimeout(() => fail('late'), connect_limit_ms);

    function detach(): void {
      clearTimeout(timer);
      stream.off('data', receive).off('end', onClosed).off('close', onClosed);
    }

    /** @returns the first packet once it is complete. @throws Error with the reason to close */
    function addChunk(chunk: Buffer): Buffer | undefined {
      if (chunks.length === 0 && chunk[0] !== connect_type) throw new Error('malformed');
      const { packets, error } = split(chunk);
      const [packet] = packets;
      if (packet === undefined && error !== undefined) throw new Error(error);
      if (!reserve(chunk.length)) throw new Error('overloaded');
      chunks.push(chunk);
      return packet;
    }

    function receive(chunk: Buffer): void {
      try {
        const packet = addChunk(chunk);
        if (packet === undefined) return;
        const parsed = parseConnect(packet);
        detach();
        resolve('unsupported_level' in parsed ? parsed : { packet: parsed, input: holdInput(stream, chunks, reserve) });
      } catch (error) {
        detach();
        reject(error);
      }
    }

    stream.on('data', receive).on('end', onClosed).on('close', onClosed);
  });
}

/** @throws Error for a malformed packet */
function parseConnect(bytes: Buffer): IConnectPacket | UnsupportedConnect {
  const { name, level } = readProtocolVersion(bytes);
  const servedLevel = servedLevels.get(name);
  if (servedLevel === undefined) throw new Error('malformed');
  if ((level & ~bridge_flag) !== servedLevel) return { unsupported_level: level };
  const protocolError = findProtocolError(bytes);
  if (protocolError !== undefined) throw new Error(protocolError);
  let packet: IConnectPacket | undefined;
  const reader = parser();
  reader.on('packet', (parsed: Packet) => {
    if (parsed.cmd === 'connect') packet = parsed;
  });
  reader.on('error', () => {
    packet = undefined;
  });
  reader.parse(bytes);
  if (packet === undefined) throw new Error('malformed');
  return packet;
}

/**
 * Removes the credentials from the CONNECT packet at the beginning of `received`: aedes keeps it as long as the connection
 * lasts. @param packet the same one, parsed
 */
export function removeCredentials(
  received: Buffer,
  { username: _username, password: _password, ...packet }: IConnectPacket,
): Buffer {
  const [connect] = createPacketSplitter()(received).packets;
  return Buffer.concat([generate(packet), received.subarray(connect?.length)]);
}

/** Reasons to refuse a login, the label `reason` of `mqtt_logins_refused_total`, with return codes (MQTT 3.1.1 §3.2.2.3). */
export const refusals = {
  version: 1,
  'client id': 2,
  'client id in use': 2,
  unavailable: 3,
  overloaded: 3,
  'no username': 4,
  'does not exist': 4,
  password: 4,
  expired: 4,
  disabled: 5,
  'disabled above': 5,
  scope: 5,
  'virtual host': 5,
  will: 5,
} as const;
export type Refusal = keyof typeof refusals;

/** Sends a CONNACK with the reason and closes the connection. */
export function refuseConnection(stream: Duplex, refusal: Refusal, protocol_level: number): void {
  // the CONNACK of MQTT 5 has another layout: reason 0x84, unsupported protocol version
  const unsupported = Buffer.from([0x20, 3, 0, 0x84, 0]);
  closeGently(stream, protocol_level === 5 ? unsupported : Buffer.from([0x20, 2, 0, refusals[refusal]]));
}
