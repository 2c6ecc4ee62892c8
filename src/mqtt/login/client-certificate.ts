import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { decodePercent } from '../../lib/percent-decoding.js';

/** A name of another kind than URI, or one in quotes, which may hold commas, colons and quotes. */
const nameForm = /(?:[^,"]|"(?:[^"\\]|\\.)*")+/g;
const deviceForm = /^\s*URI:device:([^"]+)$/;

/**
 * Finds the identifier of the device that the certificate of a connection names: a URI `device:ID` among its alternative
 * names, or its common name (reference/mqtt.md#certificates-of-devices). @returns '' if it names none or several, undefined
 * without a verified certificate
 */
export function findCertifiedDevice(stream: Duplex): string | undefined {
  if (!(stream instanceof TLSSocket) || !stream.authorized) return undefined;
  const { subject, subjectaltname = '' } = stream.getPeerCertificate();
  const alternatives = subjectaltname.match(nameForm) ?? [];
  const [device, ...others] = alternatives.flatMap((name) => decodePercent(deviceForm.exec(name)?.[1] ?? '') || []);
  if (others.length > 0) return '';
  const name: unknown = device ?? subject.CN;
  return typeof name === 'string' ? name : '';
}
