import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Files in PEM, with what they hold. */
export interface Certificate {
  certFile: string;
  keyFile: string;
  cert: string;
  key: string;
}

interface CertificateRequest {
  /** The common name. */
  name: string;
  /** Alternative names, as in `URI:device:pump-1%40acme,IP:127.0.0.1`. */
  alternatives?: string;
  /** Absent: signed by itself, as an authority is. */
  issuer?: Certificate;
  /** Days until it ends; default: 30. */
  days?: number;
}

let files = 0;

/** Makes a key and a certificate in `folder`. */
export function createCertificate(
  folder: string,
  { name, alternatives, issuer, days = 30 }: CertificateRequest,
): Certificate {
  const path = join(folder, String(++files));
  const [certFile, keyFile, requestFile, extensionFile] = ['crt', 'key', 'csr', 'ext'].map((type) => `${path}.${type}`);
  const paths = { certFile: certFile ?? '', keyFile: keyFile ?? '' };
  const run = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' });
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', paths.keyFile];
  const subject = ['-subj', `/CN=${name.replaceAll('/', '\\/')}`];
  if (issuer === undefined) run('req', '-x509', ...key, ...subject, '-days', String(days), '-out', paths.certFile);
  else {
    run('req', '-new', ...key, ...subject, '-out', requestFile ?? '');
    writeFileSync(extensionFile ?? '', alternatives === undefined ? '' : `subjectAltName=${alternatives}\n`);
    const signer = ['-CA', issuer.certFile, '-CAkey', issuer.keyFile, '-CAcreateserial', '-days', String(days)];
    const request = ['-in', requestFile ?? '', '-extfile', extensionFile ?? ''];
    run('x509', '-req', ...request, ...signer, '-out', paths.certFile);
  }
  return { ...paths, cert: readFileSync(paths.certFile, 'utf8'), key: readFileSync(paths.keyFile, 'utf8') };
}
