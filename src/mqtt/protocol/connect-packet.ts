import type { Duplex } from 'node:stream';
import { encodeRefusal, isVersion5 } from '../connection/encode.js';
import { createFrameReader, findPublishes } from '../connection/frames.js';
import { closeGently } from '../connection/outbox.js';
import { type ConnectPacket, type Level, parsePacket, readProtocol } from '../connection/packets.js';
import { reasons } from '../connection/reasons.js';

const connect_limit_ms = 10_000;
/** No more is read before the login. */
const max_pending_bytes = 64 * 1024;
const connect_type = 0x10;
/** The levels of each protocol name that are served. */
const servedLevels: ReadonlyMap<string, readonly number[]> = new Map([
  ['MQIsdp', [3]],
  ['MQTT', [4, 5]],
]);

/** The CONNECT packet of a connection that waits for its login. */
export interface ConnectRequest {
  stream: Duplex;
  packet: ConnectPacket;
  input: ReturnType<typeof holdInput>;
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
    const split = createFrameReader();
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
        const bytes = addChunk(chunk);
        if (bytes === undefined) return;
        const packet = parseConnect(bytes);
        detach();
        const rest = Buffer.concat(chunks).subarray(bytes.length);
        resolve('unsupported_level' in packet ? packet : { stream, packet, input: holdInput(stream, rest, reserve) });
      } catch (error) {
        detach();
        reject(error);
      }
    }

    stream.on('data', receive).on('end', onClosed).on('close', onClosed);
  });
}

/**
 * Keeps reading while a login is pending, because a paused stream does not report that its client has left.
 * @param reserve reserves memory for the next bytes; the connection is closed if it returns false
 */
function holdInput(stream: Duplex, received: Buffer, reserve: (bytes: number) => boolean) {
  const chunks = [received];
  const gone = new AbortController();
  let pending_bytes = 0;

  const onGone = () => gone.abort(new Error('closed'));
  const onLeft = () => {
    if (findPublishes(Buffer.concat(chunks)).length === 0) onGone();
  };

  function receive(chunk: Buffer): void {
    pending_bytes += chunk.length;
    chunks.push(chunk);
    if (!reserve(chunk.length)) {
      onGone();
      stream.destroy();
    } else if (pending_bytes >= max_pending_bytes) stream.pause();
  }

  if (stream.destroyed || stream.readableEnded) onLeft();
  stream.on('data', receive).on('end', onLeft).on('close', onLeft);
  return {
    /** Aborts when the client is gone and has left no message. */
    gone: gone.signal,
    /** Stops reading. @returns all bytes received after CONNECT */
    release(): Buffer {
      stream.off('data', receive).off('end', onLeft).off('close', onLeft);
      stream.pause();
      return Buffer.concat(chunks);
    },
  };
}

/** @throws Error for a malformed packet */
function parseConnect(bytes: Buffer): ConnectPacket | UnsupportedConnect {
  const { name, level } = readProtocol(bytes);
  const levels = servedLevels.get(name);
  if (levels === undefined) throw new Error('malformed');
  if (!levels.includes(level)) return { unsupported_level: level };
  return parsePacket(bytes, level as Level) as ConnectPacket;
}

/**
 * Reasons to refuse a login, the label `reason` of `mqtt_logins_refused_total`, with the return codes of MQTT 3.1.1
 * (§3.2.2.3) and the reason codes of MQTT 5.
 */
export const refusals = {
  version: [1, reasons.unsupported_version],
  'client id': [2, reasons.invalid_client_id],
  'client id in use': [2, reasons.invalid_client_id],
  unavailable: [3, reasons.unavailable],
  overloaded: [3, reasons.busy],
  'no username': [4, reasons.bad_credentials],
  'does not exist': [4, reasons.bad_credentials],
  password: [4, reasons.bad_credentials],
  expired: [4, reasons.bad_credentials],
  disabled: [5, reasons.not_authorized],
  'disabled above': [5, reasons.not_authorized],
  scope: [5, reasons.not_authorized],
  'virtual host': [5, reasons.not_authorized],
  will: [5, reasons.invalid_topic],
  'authentication method': [5, reasons.bad_authentication_method],
} as const;
export type Refusal = keyof typeof refusals;

/** Sends a CONNACK with the reason and closes the connection. */
export function refuseConnection(stream: Duplex, refusal: Refusal, level: number): void {
  closeGently(stream, encodeRefusal(refusals[refusal][isVersion5(level) ? 1 : 0], level));
}
