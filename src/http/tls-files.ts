import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext, type Server } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../config.js';
import type { Log } from '../db/database.js';
import { StartError } from '../errors.js';
import { coalesce } from '../lib/coalesce.js';

type Paths = Pick<Config, 'tls_cert_file' | 'tls_key_file' | 'tls_client_ca_file'>;

export type TlsFiles = NonNullable<Awaited<ReturnType<typeof openTlsFiles>>>;

interface Content {
  cert: string;
  key: string;
  /** Certificates of the authorities of clients. */
  ca: string[];
}

export const handshake_limit_ms = 10_000;
const reload_period_ms = 30_000;
const day_ms = 86_400_000;
const warning_days = 14;
const certificateForm = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** @throws StartError naming the variable and its file: it cannot be read, or is none of these, or does not fit */
export async function readTlsFiles(paths: Paths): Promise<Content | undefined> {
  const { tls_cert_file: certPath, tls_key_file: keyPath, tls_client_ca_file: caPath } = paths;
  if (certPath === undefined || keyPath === undefined) return undefined;
  const [cert, key, authorities] = await Promise.all([
    read('TLS_CERT_FILE', certPath),
    read('TLS_KEY_FILE', keyPath),
    caPath === undefined ? '' : read('TLS_CLIENT_CA_FILE', caPath),
  ]);
  const [leaf] = parse('TLS_CERT_FILE', certPath, () => parseCertificates(cert));
  const privateKey = parse('TLS_KEY_FILE', keyPath, () => createPrivateKey(key));
  if (leaf?.checkPrivateKey(privateKey) !== true)
    throw new StartError(`TLS_KEY_FILE ${keyPath} does not fit TLS_CERT_FILE ${certPath}`);
  const ca = caPath === undefined ? [] : parse('TLS_CLIENT_CA_FILE', caPath, () => parseCertificates(authorities));
  // what only OpenSSL refuses, such as a key too small
  parse('TLS_CERT_FILE', certPath, () => createSecureContext({ cert, key }));
  return { cert, key, ca: ca.map(String) };
}

async function read(variable: string, path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new StartError(`${variable} ${path} cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
}

function parse<T>(variable: string, path: string, parseContent: () => T): T {
  try {
    return parseContent();
  } catch (error) {
    const reason = (error as Error).message.split('\n', 1)[0];
    throw new StartError(`${variable} ${path} is not valid: ${reason}`);
  }
}

/** @throws Error if one is malformed, or there is none */
function parseCertificates(text: string): X509Certificate[] {
  const blocks = text.match(certificateForm) ?? [];
  if (blocks.length === 0) throw new Error('it holds no certificate in PEM');
  return blocks.map((block) => new X509Certificate(block));
}

/**
 * Reads the certificate and key of the service, and the authorities of its clients, again every 30 s (reference/configuration.md#tls). @param log of one process, the others have a silent
 * one @param clock epoch milliseconds
 * @returns undefined without TLS @throws StartError naming the file that is bad
 */
export async function openTlsFiles(config: Paths, log: Log, clock: () => number) {
  const initial = await readTlsFiles(config);
  if (initial === undefined) return undefined;
  let content = initial;
  let warned_ms = Number.NEGATIVE_INFINITY;
  let lastFault: string | undefined;
  const apply: ((content: Content) => void)[] = [];
  const readEnd = () => Date.parse(new X509Certificate(content.cert).validTo);

  function warnOfEnd(): void {
    const ends_ms = readEnd();
    if (ends_ms - clock() > warning_days * day_ms || clock() - warned_ms < day_ms) return;
    warned_ms = clock();
    log.warn({ file: config.tls_cert_file, ends_at: new Date(ends_ms).toISOString() }, 'the certificate ends soon');
  }

  const reload = coalesce(async () => {
    try {
      const found = await readTlsFiles(config);
      if (found !== undefined && !isDeepStrictEqual(found, content)) {
        content = found;
        for (const use of apply) use(content);
        log.info({ file: config.tls_cert_file }, 'TLS files read again');
      }
      lastFault = undefined;
    } catch (error) {
      const { message: reason } = error as Error;
      if (reason !== lastFault) log.error({ reason }, 'TLS files are bad; the former stay in use');
      lastFault = reason;
    }
    warnOfEnd();
  });

  warnOfEnd();
  const timer = setInterval(() => void reload().catch(() => undefined), reload_period_ms).unref();
  return {
    /** Clients may show certificates. */
    hasClientAuthorities: config.tls_client_ca_file !== undefined,
    /** Lets new connections of a server use the files as they are, now and after each change. */
    follow<S extends Server>(server: S, authenticatesClients = false): S {
      const use = ({ ca, ...keyPair }: Content) =>
        server.setSecureContext({ ...keyPair, ...(authenticatesClients && { ca }), minVersion: 'TLSv1.2' });
      use(content);
      apply.push(use);
      // an HTTP server would answer what is no handshake
      server.removeAllListeners('tlsClientError').on('tlsClientError', (_error, socket) => socket.destroy());
      return server;
    },
    /** Reads the files again; bad ones leave the former in use, and are logged. */
    reload,
    readSecondsLeft: () => (readEnd() - clock()) / 1000,
    close: () => clearInterval(timer),
  };
}
