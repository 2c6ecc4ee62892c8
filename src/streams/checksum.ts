import { createHash, createHmac } from 'node:crypto';
import canonicalize from 'canonicalize';

/** HMAC-SHA1 with the device's checksum as key, or SHA-1, of canonical JSON (RFC 8785; reference/streams.md#checksum). */
export function checksumOf(data: object, key: string | undefined): string {
  const canonical = canonicalize(data) ?? '';
  const hash = key === undefined ? createHash('sha1') : createHmac('sha1', key);
  return hash.update(canonical).digest('hex');
}
