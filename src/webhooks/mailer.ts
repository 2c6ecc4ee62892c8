import MailComposer from 'nodemailer/lib/mail-composer';
import SMTPConnection from 'nodemailer/lib/smtp-connection';
import { isThisMachine } from '../egress/addresses.js';
import { awaitLater } from '../lib/promises.js';
import type { MailSender, SmtpServer } from '../lib/server-addresses.js';
import { createShares } from '../lib/shares.js';

/** A mail to several addresses, each of which gets one of its own. */
export interface Mail {
  account: string;
  addresses: readonly string[];
  subject: string;
  text: string;
  signal: AbortSignal;
}

/** Outcome of a mail; `error` is absent if every address was served. */
export interface MailOutcome {
  error?: string;
  /** Addresses to which it is to be sent again. */
  left: readonly string[];
  /** Addresses that the server will not take. */
  refused: readonly string[];
}

/** Sends mails through the server of the operator. */
export interface Mailer {
  /** Ends with the signal, whatever the server does. */
  send(mail: Mail): Promise<MailOutcome>;
}

/** Connections at a time: mail servers take few, and an account gets half. */
const max_connections = 32;
const max_waiting = 1000;
const max_response_bytes = 64 * 1024;
const max_error_length = 200;
const idle_limit_ms = 10_000;

/** The part of an error of SMTPConnection that matters here. */
interface SmtpError {
  responseCode?: number;
  response?: string;
  code?: string;
}

/** Opens the way to the mail server. The certificate of a server on this machine is not verified. */
export function openMailer(server: SmtpServer, from: MailSender): Mailer {
  const slots = createShares({ capacity: max_connections, max_waiting });
  return {
    async send(mail) {
      const left = new Set(mail.addresses);
      const refused: string[] = [];
      const faults: string[] = [];
      const serve = () => converse(server, from, mail, { left, refused, faults });
      try {
        await slots.run(mail.account, serve, { signal: mail.signal });
      } catch (error) {
        faults.push(describe(error as SmtpError, mail.signal));
      }
      const error = faults.join('; ').replaceAll(/[\s\p{Cc}]+/gu, ' ');
      return {
        left: [...left],
        refused,
        ...(error !== '' && { error: [...error].slice(0, max_error_length).join('') }),
      };
    },
  };
}

/** Progress of a conversation with the server. */
interface Progress extends Pick<MailOutcome, 'refused'> {
  left: Set<string>;
  refused: string[];
  faults: string[];
}

/** Sends a mail to one address after the other. @throws what ends the connection */
async function converse(
  server: SmtpServer,
  from: MailSender,
  mail: Mail,
  { left, refused, faults }: Progress,
): Promise<void> {
  const { host, port, isSecure: secure, auth } = server;
  const limits = { maxResponseSize: max_response_bytes, socketTimeout: idle_limit_ms, socketCloseTimeout: 0 };
  const connection = new SMTPConnection({
    host,
    port,
    secure,
    tls: { rejectUnauthorized: !isThisMachine(host) },
    ...limits,
  });
  const { signal } = mail;
  let abort = () => {};
  const ended = awaitLater(
    new Promise<never>((_resolve, reject) => {
      connection.on('error', reject).once('end', () => reject(new Error('closed')));
      abort = () => reject(signal.reason);
      signal.addEventListener('abort', abort, { once: true });
    }),
  );
  const run = (start: (done: (error?: Error | null) => void) => void) =>
    Promise.race([
      ended,
      new Promise<void>((resolve, reject) => start((error) => (error ? reject(error) : resolve()))),
    ]);
  try {
    await run((done) => connection.connect(done));
    if (auth !== undefined) await run((done) => connection.login(auth, done));
    for (const to of mail.addresses) {
      const message = await compose(from, to, mail);
      const failure = await run((done) => connection.send({ from: from.address, to }, message, done)).catch(
        (error: SmtpError) => error,
      );
      if (failure?.responseCode !== undefined) {
        faults.push(`${to}: ${failure.response}`);
        if (failure.responseCode >= 500) refused.push(to);
        await run((done) => connection.reset(done));
      } else if (failure) throw failure;
      if (failure === undefined || refused.includes(to)) left.delete(to);
    }
    connection.quit();
  } catch (error) {
    connection.close();
    throw error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function compose(from: MailSender, address: string, { subject, text }: Mail): Promise<Buffer> {
  const headers = { 'Auto-Submitted': 'auto-generated' };
  const safe = { disableFileAccess: true, disableUrlAccess: true };
  return new MailComposer({ from, to: { name: '', address }, subject, text, headers, ...safe }).compile().build();
}

function describe({ responseCode, response, code }: SmtpError, signal: AbortSignal): string {
  if (signal.aborted) return 'the mail server did not answer in time';
  if (code === 'EAUTH') return 'the mail server refuses SMTP_URL';
  if (code === 'ETLS') return 'the mail server has no valid certificate';
  return responseCode === undefined ? 'the mail server could not be reached' : String(response);
}
