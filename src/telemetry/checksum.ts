import { createHash, createHmac } from 'node:crypto';
import canonicalize from 'canonicalize';

/** The checksum of a stream's data: over its canonical JSON (RFC 8785), keyed with the device's own where it has one (contract 8). */
export function checksumOf(data: object, key: string | undefined): string {
  const canonical = canonicalize(data) ?? '';
  const hash = key === undefined ? createHash('sha1') : createHmac('sha1', key);
  return hash.update(canonical).digest('hex');
}
