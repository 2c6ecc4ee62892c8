import type { Duplex } from 'node:stream';
import ipaddr from 'ipaddr.js';
import { runUntilTimeLimit } from '../../lib/time-limit.js';

/** The header of the PROXY protocol with which a proxy begins a connection. */
export interface ProxyHeader {
  /** 0: the connection begins with no such header. */
  length: number;
  /** Absent if the proxy speaks for itself, or does not know an IP address. */
  address?: string;
}

const text_signature = Buffer.from('PROXY ');
const binary_signature = Buffer.from('\r\n\r\n\0\r\nQUIT\n');
/** Line break included. */
const max_text_bytes = 107;
/** The protocol has up to 64 KiB; proxies send addresses, and a certificate at most. */
const max_binary_bytes = 4096;
const fixed_bytes = 16;
const max_port = 65_535;
/** Bytes of one address in the binary form, by the family: IPv4, IPv6, and those without an IP address. */
const addressSizes = [0, 4, 16, 0];

const begins = (bytes: Buffer, signature: Buffer) =>
  bytes.subarray(0, signature.length).equals(signature.subarray(0, bytes.length));

/**
 * Parses the beginning of a connection (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt).
 * @returns undefined if more bytes are needed. @throws Error for a malformed header
 */
export function parseProxyHeader(bytes: Buffer): ProxyHeader | undefined {
  if (begins(bytes, binary_signature)) return parseBinary(bytes);
  return begins(bytes, text_signature) ? parseText(bytes) : { length: 0 };
}

/** Version 1, for a client at `ip`; the other members say nothing. */
export function formatProxyHeader(ip: string): string {
  return `PROXY TCP${ip.includes(':') ? 6 : 4} ${ip} ${ip} 0 0\r\n`;
}

/** Version 1. */
function parseText(bytes: Buffer): ProxyHeader | undefined {
  const end = bytes.subarray(0, max_text_bytes).indexOf('\r\n');
  if (end < 0 && bytes.length < max_text_bytes) return undefined;
  const line = bytes.toString('latin1', 0, end);
  const length = end + 2;
  if (/^PROXY UNKNOWN(?: |$)/.test(line)) return { length };
  const [, family, address = '', destination = '', ...ports] = line.split(' ');
  const isAddress = (text: string) =>
    family === 'TCP4' ? ipaddr.IPv4.isValidFourPartDecimal(text) : ipaddr.IPv6.isValid(text);
  const arePorts = ports.length === 2 && ports.every((port) => /^\d{1,5}$/.test(port) && Number(port) <= max_port);
  if (end < 0 || !/^TCP[46]$/.test(family ?? '') || !isAddress(address) || !isAddress(destination) || !arePorts)
    throw new Error('malformed');
  return { length, address: ipaddr.process(address).toString() };
}

/** Version 2. What follows the addresses is passed over. */
function parseBinary(bytes: Buffer): ProxyHeader | undefined {
  if (bytes.length < fixed_bytes) return undefined;
  const [versionAndCommand = 0, familyAndTransport = 0] = bytes.subarray(binary_signature.length);
  const length = fixed_bytes + bytes.readUInt16BE(fixed_bytes - 2);
  const [family, transport] = [familyAndTransport >> 4, familyAndTransport & 0xf];
  const size = addressSizes[family];
  const isValid = /^2[01]$/.test(versionAndCommand.toString(16)) && transport <= 2;
  if (!isValid || size === undefined || length > max_binary_bytes) throw new Error('malformed');
  if (bytes.length < length) return undefined;
  // the proxy speaks for itself
  if (versionAndCommand === 0x20 || size === 0) return { length };
  // source, destination and a port of each
  if (length < fixed_bytes + 2 * size + 4) throw new Error('malformed');
  const source = ipaddr.fromByteArray([...bytes.subarray(fixed_bytes, fixed_bytes + size)]);
  return { length, address: ipaddr.process(source.toString()).toString() };
}

const header_limit_ms = 10_000;

/**
 * Takes the header of the PROXY protocol off a connection. @returns the address of the client, if the header has one
 * @throws Error if the header is malformed, not complete within 10 s, or the connection ends
 */
export function takeProxyHeader(stream: Duplex): Promise<string | undefined> {
  return runUntilTimeLimit(header_limit_ms, undefined, async () => {
    let bytes = Buffer.alloc(0);
    const chunks = stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
    for await (const chunk of chunks) {
      bytes = Buffer.concat([bytes, chunk]);
      const header = parseProxyHeader(bytes);
      if (header === undefined) continue;
      if (bytes.length > header.length) stream.unshift(bytes.subarray(header.length));
      return header.address;
    }
    throw new Error('closed');
  }).catch((error: unknown) => {
    // health checks of proxies reset connections
    throw stream.destroyed ? new Error('closed') : error;
  });
}
