import { once } from 'node:events';
import http, { type IncomingMessage, type RequestOptions } from 'node:http';
import https from 'node:https';
import { isIP, type Socket } from 'node:net';
import tls from 'node:tls';

type Environment = Readonly<Record<string, string | undefined>>;

const response_timeout_ms = 5_000;
const max_redirects = 3;

/**
 * Requests a file, through the proxy that `https_proxy` or `http_proxy` names; resolves once the headers are there.
 * @throws Error unless the status is 200
 */
export async function openDownload(url: URL, env: Environment, signal: AbortSignal): Promise<IncomingMessage> {
  let target = url;
  for (let redirects = 0; redirects <= max_redirects; redirects += 1) {
    const response = await sendRequest(target, findProxy(env), signal);
    const { statusCode = 0, headers } = response;
    if (statusCode === 200) return response;
    response.destroy();
    const isRedirect = [301, 302, 303, 307, 308].includes(statusCode) && headers.location !== undefined;
    if (!isRedirect) throw new Error(`${target.origin} answered with status ${statusCode}`);
    target = new URL(headers.location ?? '', target);
  }
  throw new Error(`${url.origin} redirects too often`);
}

function findProxy(env: Environment): URL | undefined {
  const proxy = env.https_proxy || env.HTTPS_PROXY || env.http_proxy || env.HTTP_PROXY;
  return proxy ? new URL(proxy) : undefined;
}

async function sendRequest(url: URL, proxy: URL | undefined, signal: AbortSignal): Promise<IncomingMessage> {
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), response_timeout_ms);
  const options = { signal: AbortSignal.any([signal, timeout.signal]) };
  try {
    if (url.protocol === 'http:') return await waitForResponse(buildHttpRequest(url, proxy, options));
    if (proxy === undefined) return await waitForResponse(https.request(url, options));
    const tunnel = await openTunnel(url, proxy, options);
    const name = isIP(url.hostname) === 0 ? { servername: url.hostname } : {};
    const createConnection = () => tls.connect({ socket: tunnel, host: url.hostname, ...name });
    return await waitForResponse(https.request(url, { ...options, defaultPort: 443, createConnection }));
  } catch (error) {
    if (timeout.signal.aborted) throw new Error(`${(proxy ?? url).origin} does not answer`);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function buildHttpRequest(url: URL, proxy: URL | undefined, options: RequestOptions): http.ClientRequest {
  if (proxy === undefined) return http.request(url, options);
  const headers = { Host: url.host, ...proxyAuthorization(proxy) };
  return http.request(proxy, { ...options, path: url.href, headers });
}

/** Opens a connection to the host of `url` with the proxy's CONNECT method. */
async function openTunnel(url: URL, proxy: URL, options: RequestOptions): Promise<Socket> {
  const path = `${url.hostname}:${url.port || 443}`;
  const request = http.request(proxy, { ...options, method: 'CONNECT', path, headers: proxyAuthorization(proxy) });
  const connected = once(request, 'connect') as Promise<[IncomingMessage, Socket]>;
  request.end();
  const [{ statusCode }, socket] = await connected;
  if (statusCode === 200) return socket;
  socket.destroy();
  throw new Error(`the proxy ${proxy.host} answered with status ${statusCode}`);
}

function proxyAuthorization({ username, password }: URL): Record<string, string> {
  if (username === '') return {};
  const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { 'Proxy-Authorization': `Basic ${Buffer.from(login).toString('base64')}` };
}

async function waitForResponse(request: http.ClientRequest): Promise<IncomingMessage> {
  const responded = once(request, 'response') as Promise<[IncomingMessage]>;
  request.end();
  const [response] = await responded;
  return response;
}
