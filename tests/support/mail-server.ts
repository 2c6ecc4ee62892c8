import { once } from 'node:events';
import type { AddressInfo, Server } from 'node:net';
import { text } from 'node:stream/consumers';
import { SMTPServer } from 'smtp-server';

/** A mail as a server has received it. */
export interface ReceivedMail {
  from: string;
  to: string[];
  user: unknown;
  isEncrypted: boolean;
  /** Header fields by name in lower case, unfolded and undecoded. */
  headers: Record<string, string>;
  body: string;
}

export interface MailServer {
  port: number;
  mails: ReceivedMail[];
  close(): Promise<void>;
}

interface Options {
  /** Login that is required, after STARTTLS only. */
  login?: { user: string; pass: string };
  /** Answers the address of a recipient; undefined: it is taken. */
  answer?: (address: string) => number | undefined;
}

/** Starts a mail server on 127.0.0.1 with STARTTLS. */
export async function startMailServer({ login, answer = () => undefined }: Options = {}): Promise<MailServer> {
  const mails: ReceivedMail[] = [];
  const server = new SMTPServer({
    authOptional: login === undefined,
    logger: false,
    onAuth({ username, password }, _session, done) {
      if (username === login?.user && password === login?.pass) done(null, { user: username });
      else done(new Error('no such login'));
    },
    onRcptTo({ address }, _session, done) {
      const code = answer(address);
      if (code === undefined) done();
      else done(Object.assign(new Error(`5.1.1 refused\u0007 as ${code}`), { responseCode: code }));
    },
    onData(stream, { envelope, user, secure }, done) {
      text(stream).then((source) => {
        const [head = '', ...rest] = source.split('\r\n\r\n');
        const fields = head.replaceAll(/\r\n[ \t]+/g, ' ').split('\r\n');
        const headers = fields.map((field): [string, string] => {
          const [name = '', ...value] = field.split(': ');
          return [name.toLowerCase(), value.join(': ')];
        });
        const from = envelope.mailFrom === false ? '' : envelope.mailFrom.address;
        const to = envelope.rcptTo.map(({ address }) => address);
        const mail = { from, to, user, isEncrypted: secure, headers: Object.fromEntries(headers) };
        mails.push({ ...mail, body: rest.join('\r\n\r\n') });
        done();
      }, done);
    },
  });
  server.on('error', () => undefined);
  const listening = server.listen(0, '127.0.0.1') as unknown as Server;
  await once(listening, 'listening');
  const { port } = listening.address() as AddressInfo;
  return { port, mails, close: () => new Promise((resolve) => void server.close(() => resolve())) };
}
