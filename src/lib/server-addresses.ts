import { isMailAddress } from './mail-addresses.js';
import { decodePercent } from './percent-decoding.js';

/** An external broker and the service's credentials there. */
export interface BridgeConfig {
  /** Without credentials. */
  url: string;
  username: string;
  password: string;
}

/** The mail server of the operator. */
export interface SmtpServer {
  host: string;
  port: number;
  /** TLS from the first byte on. */
  isSecure: boolean;
  auth?: { user: string; pass: string };
}

/** Whom mails come from. */
export interface MailSender {
  name: string;
  address: string;
}

function readCredentials({ username, password }: URL): [string, string] | undefined {
  const [user, pass] = [username, password].map(decodePercent);
  return user && pass ? [user, pass] : undefined;
}

/** Parses the address of a broker. @returns undefined without user and password */
export function parseBridge(text: string): BridgeConfig | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const [username, password] = (url && readCredentials(url)) ?? [];
  if (url === undefined || username === undefined || password === undefined) return undefined;
  if (!/^(?:mqtts?|wss?):$/.test(url.protocol)) return undefined;
  url.username = '';
  url.password = '';
  return { url: url.href, username, password };
}

/** Parses the address of a mail server, with user and password or without. @returns undefined for any other */
export function parseSmtpServer(text: string): SmtpServer | undefined {
  if (!/^smtps?:\/\/[^/?#\s]+\/?$/.test(text) || !URL.canParse(text)) return undefined;
  const url = new URL(text);
  const [user, pass] = readCredentials(url) ?? [];
  if (url.hostname === '' || (url.username + url.password !== '' && pass === undefined)) return undefined;
  const isSecure = url.protocol === 'smtps:';
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const port = Number(url.port || (isSecure ? 465 : 587));
  return { host, port, isSecure, ...(user && pass && { auth: { user, pass } }) };
}

/** Parses an address, or a name and an address in `<>`. @returns undefined for anything else */
export function parseSender(text: string): MailSender | undefined {
  const [, name = '', bracketed] = /^(?:([^<>"\p{C}]{1,100}) )?<([^<>]+)>$/u.exec(text) ?? [];
  const address = bracketed ?? text;
  return isMailAddress(address) ? { name, address } : undefined;
}
