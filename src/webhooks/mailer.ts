import MailComposer from 'nodemailer/lib/mail-composer';
import SMTPConnection from 'nodemailer/lib/smtp-connection';
import { isThisMachine } from '../egress/addresses.js';
import { awaitLater } from '../lib/promises.js';
import type { MailSender, SmtpServer } from '../lib/server-addresses.js';
import { createShares } from '../lib/shares.js';
import type { AttemptOutcome } from './deliveries.js';
import { type TextMessage, writeBody } from './message.js';

/** A mail to several addresses, each of which gets one of its own. */
interface Mail {
  account: string;
  addresses: readonly string[];
  message: TextMessage;
  signal: AbortSignal;
}

/** Sends mails through the server of the operator. */
export type Mailer = ReturnType<typeof openMailer>;

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
export function openMailer(server: SmtpServer, from: MailSender) {
  const slots = createShares({ capacity: max_connections, max_waiting });
  return {
    /** Ends with the signal, whatever the server does. @returns without the addresses that were served, or never will be */
    async send(mail: Mail): Promise<AttemptOutcome> {
      const { account, addresses, signal } = mail;
      const progress: Progress = { left: new Set(addresses), served: 0, faults: [] };
      try {
        await slots.run(account, () => converse(server, from, mail, progress), { signal });
      } catch (error) {
        progress.faults.push(describe(error as SmtpError, signal));
      }
      const { left, served, faults } = progress;
      const error = faults.join('; ').replaceAll(/[\s\p{Cc}]+/gu, ' ');
      const shown = error !== '' && { error: [...error].slice(0, max_error_length).join('') };
      return { addresses: [...left], isDelivered: served > 0, ...shown };
    },
  };
}

/** Progress of a conversation with the server. */
interface Progress {
  /** Addresses to which it is to be sent again. */
  left: Set<string>;
  served: number;
  faults: string[];
}

/** Sends a mail to one address after the other. @throws what ends the connection */
async function converse(server: SmtpServer, from: MailSender, mail: Mail, progress: Progress): Promise<void> {
  const { host, port, isSecure: secure, auth } = server;
  const limits = { maxResponseSize: max_response_bytes, socketTimeout: idle_limit_ms, socketCloseTimeout: 0 };
  const connection = new SMTPConnection({
    host,
    port,
    secure,
    tls: { rejectUnauthorized: !isThisMachine(host) },
    ...limits,
  });
  const { addresses, message, signal } = mail;
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
    for (const to of addresses) {
      const composed = await compose(from, to, message);
      const failure = await run((done) => connection.send({ from: from.address, to }, composed, done)).catch(
        (error: SmtpError) => error,
      );
      if (failure === undefined) progress.served++;
      else if (failure.responseCode === undefined) throw failure;
      else {
        progress.faults.push(`${to}: ${failure.response}`);
        await run((done) => connection.reset(done));
        if (failure.responseCode < 500) continue;
      }
      progress.left.delete(to);
    }
    connection.quit();
  } catch (error) {
    connection.close();
    throw error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function compose(from: MailSender, address: string, message: TextMessage): Promise<Buffer> {
  const headers = { 'Auto-Submitted': 'auto-generated' };
  const safe = { disableFileAccess: true, disableUrlAccess: true };
  const content = { subject: message.title, text: writeBody(message) };
  return new MailComposer({ from, to: { name: '', address }, ...content, headers, ...safe }).compile().build();
}

function describe({ responseCode, response, code }: SmtpError, signal: AbortSignal): string {
  if (signal.aborted) return 'the mail server did not answer in time';
  if (code === 'EAUTH') return 'the mail server refuses SMTP_URL';
  if (code === 'ETLS') return 'the mail server has no valid certificate';
  return responseCode === undefined ? 'the mail server could not be reached' : String(response);
}
