import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { PassThrough } from 'node:stream';
import { expect, it } from '@jest/globals';
import { createClientFinder } from '../../src/http/client-address.js';
import { parseProxyHeader, takeProxyHeader } from '../../src/mqtt/protocol/proxy-header.js';

/** Client behind proxies (reference/configuration.md#variables). */
const hex = (text: string) => Buffer.from(text.replace(/\s/g, ''), 'hex');
const v2 = '0d0a0d0a000d0a515549540a';
const ipv4 = `${v2} 21 11 000c c0000207 0a000001 d431 075b`;
const ipv6 = `${v2} 21 21 0024 20010db8000000000000000000000007 20010db8000000000000000000000001 d431 075b`;
const mapped = `${v2} 21 21 0024 00000000000000000000ffffc0000207 00000000000000000000ffff0a000001 d431 075b`;
const unix = `${v2} 21 31 00d8 ${'2f61'.padEnd(432, '0')}`;
const v1Longest = 'PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535';

it.each<[string, Buffer, object]>([
  ['1, IPv4', Buffer.from('PROXY TCP4 192.0.2.7 10.0.0.1 54321 1883\r\n'), { length: 42, address: '192.0.2.7' }],
  ['1, IPv6', Buffer.from('PROXY TCP6 2001:db8::7 2001:DB8::1 1 0\r\n'), { length: 40, address: '2001:db8::7' }],
  ['1, of an unknown client', Buffer.from('PROXY UNKNOWN\r\n'), { length: 15 }],
  ['1, of an unknown client, with addresses', Buffer.from(`${v1Longest}\r\n`), { length: 59 }],
  ['2, IPv4', hex(ipv4), { length: 28, address: '192.0.2.7' }],
  ['2, IPv6', hex(ipv6), { length: 52, address: '2001:db8::7' }],
  ['2, IPv4 mapped to IPv6', hex(mapped), { length: 52, address: '192.0.2.7' }],
  ['2, UDP', hex(ipv4.replace('21 11', '21 12')), { length: 28, address: '192.0.2.7' }],
  [
    '2, with more after the addresses',
    hex(`${v2} 21 11 0010 c0000207 0a000001 d431 075b 04000161`),
    { length: 32, address: '192.0.2.7' },
  ],
  ['2, LOCAL', hex(`${v2} 20 00 0000`), { length: 16 }],
  ['2, LOCAL with addresses', hex(ipv4.replace('21 11', '20 11')), { length: 28 }],
  ['2, of a Unix socket', hex(unix), { length: 232 }],
  ['2, without an address', hex(`${v2} 21 00 0000`), { length: 16 }],
])('takes a header of version %s, also in single bytes', async (_version, header, expected) => {
  const rest = Buffer.from('rest');
  expect(parseProxyHeader(Buffer.concat([header, rest]))).toEqual(expected);
  for (let end = 0; end < header.length; end++) expect(parseProxyHeader(header.subarray(0, end))).toBeUndefined();
  const stream = new PassThrough();
  const taken = takeProxyHeader(stream);
  for (const byte of Buffer.concat([header, rest])) stream.write(Buffer.of(byte));
  expect(await taken).toBe((expected as { address?: string }).address);
  const received: Buffer[] = [];
  stream.on('data', (chunk) => received.push(chunk));
  stream.end();
  await once(stream, 'end');
  expect(Buffer.concat(received).toString()).toBe('rest');
});

it.each([
  ['a family that does not fit', Buffer.from('PROXY TCP6 192.0.2.7 10.0.0.1 1 1\r\n')],
  ['a short form of IPv4', Buffer.from('PROXY TCP4 192.7 10.0.0.1 1 1\r\n')],
  ['text for an address', Buffer.from('PROXY TCP4 host\u0000 10.0.0.1 1 1\r\n')],
  ['no ports', Buffer.from('PROXY TCP4 192.0.2.7 10.0.0.1\r\n')],
  ['a port beyond 65535', Buffer.from('PROXY TCP4 192.0.2.7 10.0.0.1 1 65536\r\n')],
  ['one word too many', Buffer.from('PROXY TCP4 192.0.2.7 10.0.0.1 1 1 1\r\n')],
  ['an unknown protocol', Buffer.from('PROXY UDP4 192.0.2.7 10.0.0.1 1 1\r\n')],
  ['no line break within 107 bytes', Buffer.from(`PROXY UNKNOWN ${'x'.repeat(93)}`)],
  ['version 3', hex(ipv4.replace('21 11', '31 11'))],
  ['an unknown command', hex(ipv4.replace('21 11', '22 11'))],
  ['an unknown family', hex(ipv4.replace('21 11', '21 41'))],
  ['an unknown transport', hex(ipv4.replace('21 11', '21 13'))],
  ['a length that is too short for the addresses', hex(`${v2} 21 11 000b c0000207 0a000001 d431 07`)],
  ['more than 4 KiB', hex(`${v2} 21 11 1000`)],
])('refuses %s in a header of the PROXY protocol', async (_fault, header) => {
  expect(() => parseProxyHeader(header)).toThrow('malformed');
  const stream = new PassThrough();
  stream.write(header);
  await expect(takeProxyHeader(stream)).rejects.toThrow('malformed');
});

it('leaves a connection without a header as it is, and gives up one that ends', async () => {
  const connect = Buffer.from([0x10, 0]);
  expect(parseProxyHeader(connect)).toEqual({ length: 0 });
  const stream = new PassThrough();
  stream.write(connect);
  expect(await takeProxyHeader(stream)).toBeUndefined();
  expect(stream.read()).toEqual(connect);
  const cut = new PassThrough();
  cut.end('PROXY TCP4');
  await expect(takeProxyHeader(cut)).rejects.toThrow('closed');
  const reset = new PassThrough();
  const taken = takeProxyHeader(reset);
  reset.destroy();
  await expect(taken).rejects.toThrow('closed');
});

const find = (peer: string | undefined, forwarded?: string) =>
  createClientFinder(['10.0.0.0/8', 'fd00::/8'])({
    socket: { remoteAddress: peer } as IncomingMessage['socket'],
    headers: { 'x-forwarded-for': forwarded } as IncomingMessage['headers'],
  });

it.each([
  ['192.0.2.1', '198.51.100.7', '192.0.2.1'],
  ['10.0.0.1', undefined, '10.0.0.1'],
  ['10.0.0.1', '198.51.100.7', '198.51.100.7'],
  ['::ffff:10.0.0.1', '198.51.100.7', '198.51.100.7'],
  ['fd00::1', '2001:db8::7', '2001:db8::7'],
  ['10.0.0.1', '203.0.113.9, 198.51.100.7', '198.51.100.7'],
  ['10.0.0.1', '203.0.113.9,198.51.100.7 , 10.9.9.9', '198.51.100.7'],
  ['10.0.0.1', '10.0.0.2', '10.0.0.2'],
  ['10.0.0.1', '198.51.100.7:40000', '198.51.100.7'],
  ['10.0.0.1', '[2001:db8::7]:40000', '2001:db8::7'],
  ['10.0.0.1', '[2001:db8::7]', '2001:db8::7'],
  ['10.0.0.1', '::ffff:198.51.100.7', '198.51.100.7'],
  ['10.0.0.1', 'unknown', '10.0.0.1'],
  ['10.0.0.1', '198.51.100.7, "\n', '10.0.0.1'],
  ['10.0.0.1', '', '10.0.0.1'],
  [undefined, '198.51.100.7', undefined],
])('finds the client of %s with X-Forwarded-For %s', (peer, forwarded, client) => {
  expect(find(peer, forwarded)).toBe(client);
});
