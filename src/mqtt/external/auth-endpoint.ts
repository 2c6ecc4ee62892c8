import { createHash, timingSafeEqual } from 'node:crypto';
import { type Request, Router } from 'express';
import type { Log } from '../../db/database.js';
import { AppError } from '../../errors.js';
import { readBody } from '../../http/body.js';
import { createCloseSignal } from '../../http/close-signal.js';
import { localsOf } from '../../http/context.js';
import { awaitLater } from '../../lib/promises.js';
import { createRateLimitedLog } from '../../lib/rate-limited-log.js';
import type { BridgeConfig } from '../../lib/server-addresses.js';
import { describeFailure, findGrant, findKeyLogin, type LoginDeps, logIn, type RefusedLogin } from '../login/login.js';
import { createLoginQueue } from '../login/login-queue.js';
import { createPasswordVerifier } from '../login/passwords.js';
import type { Refusal } from '../protocol/connect-packet.js';
import {
  describeConnect,
  describeDevice,
  describeOwner,
  formatName,
  type LoginNames,
  redactTopic,
} from '../sessions/login-names.js';
import type { LoggedIn } from '../sessions/permissions.js';
import { createLoginLookup } from '../store/credentials.js';
import { bridge_client_prefix, splitUsername } from './bridge-login.js';
import { bindClient, isBoundClient } from './client-bindings.js';
import { canShareVhost, isKeyAllowed } from './routing-keys.js';

interface Options extends Omit<LoginDeps, 'findDeviceLogin' | 'verify'> {
  /** Without it the endpoints answer 404. */
  secret: string | undefined;
  /** Logins of the bridge, which may do everything. */
  bridges: readonly BridgeConfig[] | undefined;
  log: Log;
  metrics: { refused(reason: Refusal): void };
}

/** A refused login, or something else that is not allowed. */
type Denial = RefusedLogin | (Omit<RefusedLogin, 'refusal'> & { refusal: 'not allowed' });

/** @param signal aborts when the client is gone @returns undefined if it is allowed */
type AuthCheck = (params: URLSearchParams, signal: AbortSignal) => Promise<Denial | undefined>;

/** The login of a username. `owner` is that of its client ids. */
interface Subject extends LoggedIn {
  names: LoginNames;
  /** Reports whether a client id is its own. */
  isBound(client_id: string): Promise<boolean>;
}

type SubjectCheck = (subject: Subject, params: URLSearchParams) => Promise<boolean>;

const body_limit_bytes = 16 * 1024;
const shared_vhost = '/';
const topic_exchange = 'amq.topic';

/**
 * The endpoints of RabbitMQ's HTTP auth backend: /mqtt-auth/user, vhost, resource and topic, GET or POST with the secret
 * in the query, answered with `allow` or `deny` (docs/external-broker.md). Every failure is `deny`.
 */
export function mqttAuthRouter(options: Options): Router {
  const { secret, log, metrics } = options;
  const warn = createRateLimitedLog(log);
  const router = Router({ caseSensitive: true });
  const checks = secret === undefined ? new Map<string, AuthCheck>() : createChecks(options);

  function reportDenial(question: string, params: URLSearchParams, { refusal, ...found }: Denial): void {
    if (question === 'user' && refusal !== 'not allowed') metrics.refused(refusal);
    const { username, password, client_id, routing_key } = readTexts(params);
    const topic = redactTopic(routing_key.replaceAll('.', '/'));
    const names = describeConnect({ username, password: Buffer.from(password), client_id }, found);
    const fields = { question, reason: refusal, ...(topic && { topic }), ...names };
    warn(`MQTT authorization denied: ${refusal}`, fields, refusal === 'unavailable' ? '' : formatName(names));
  }

  router.all('/mqtt-auth/:question', async (request, response) => {
    const { question } = request.params;
    const check = checks.get(question);
    if (secret === undefined || check === undefined) throw new AppError('notFound');
    localsOf(response).route = `/mqtt-auth/${question}`;
    if (request.method !== 'GET' && request.method !== 'POST') {
      response.setHeader('Allow', 'GET, POST');
      throw new AppError('methodNotAllowed');
    }
    const query = queryOf(request);
    if (!isEqual(query.get('secret') ?? '', secret)) throw new AppError('unauthorized');
    const params =
      request.method === 'GET'
        ? query
        : new URLSearchParams(String(await readBody(request, { limit_bytes: body_limit_bytes })));
    const closed = createCloseSignal(response);
    const denial = await check(params, closed).catch(describeFailure);
    if (denial !== undefined && !closed.aborted) reportDenial(question, params, denial);
    response.type('text/plain').send(denial === undefined ? 'allow' : 'deny');
  });
  router.use('/mqtt-auth', () => {
    throw new AppError('notFound');
  });
  return router;
}

const names = ['username', 'password', 'client_id', 'routing_key'] as const;

function readTexts(params: URLSearchParams): Record<(typeof names)[number], string> {
  const [username = '', password = '', client_id = '', routing_key = ''] = names.map((name) => params.get(name) ?? '');
  return { username, password, client_id, routing_key };
}

/** RabbitMQ appends `?…` to the URL of a GET even if the URL has a query already. */
function queryOf({ url }: Request): URLSearchParams {
  const at = url.indexOf('?');
  return new URLSearchParams(at < 0 ? '' : url.slice(at + 1).replace('?', '&'));
}

function isEqual(actual: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(actual), digest(expected));
}

function createChecks(options: Options): Map<string, AuthCheck> {
  const { db, areAncestorsEnabled, clock } = options;
  const findDeviceLogin = createLoginLookup(db);
  const bridges = (options.bridges ?? []).map(({ username, password }) => ({
    username: splitUsername(username).user,
    password,
  }));

  /** Finds the owner of a username that logged in before, unless it has lost its access. */
  async function identify(username: string): Promise<Subject | Denial> {
    const device = await findDeviceLogin(username);
    const names = device && describeDevice(username, device);
    const login =
      device === undefined
        ? await findKeyLogin(options, username)
        : await findGrant(device, '', { ...names }, areAncestorsEnabled);
    if ('refusal' in login) return login;
    const owner = ownerOf(login);
    const isBound = (client_id: string) => isBoundClient(db, client_id, owner, new Date(clock()));
    return { ...login, owner, names: names ?? describeOwner(login), isBound };
  }

  /** Applies `check` to the owner of the username, in a virtual host it may use; allows the bridge everything. */
  function forSubject(check: SubjectCheck): AuthCheck {
    return async (params) => {
      const username = params.get('username') ?? '';
      if (bridges.some((bridge) => bridge.username === username)) return undefined;
      const subject = await identify(username);
      if ('refusal' in subject) return subject;
      if (!isVhostAllowed(subject, params.get('vhost'))) return { refusal: 'virtual host', ...subject.names };
      return (await check(subject, params)) ? undefined : { refusal: 'not allowed', ...subject.names };
    };
  }

  return new Map<string, AuthCheck>([
    ['user', createLoginCheck({ ...options, findDeviceLogin }, bridges)],
    // only MQTT sends a client id; with AMQP a message may carry further routing keys, which are never checked
    ['vhost', forSubject((subject, params) => subject.isBound(params.get('client_id') ?? ''))],
    ['resource', forSubject(isResourceAllowed)],
    ['topic', forSubject(isTopicAllowed)],
  ]);
}

/** Checks username and password, and binds the client id to its owner. */
function createLoginCheck(
  options: Options & Pick<LoginDeps, 'findDeviceLogin'>,
  bridges: readonly { username: string; password: string }[],
): AuthCheck {
  const { db, clock } = options;
  let verifier: ReturnType<typeof createPasswordVerifier> | undefined;
  const loginQueue = createLoginQueue();

  return async (params, signal) => {
    const { username, password, client_id } = readTexts(params);
    const bridgeLogins = bridges.filter((bridge) => bridge.username === username);
    if (bridgeLogins.length > 0)
      return bridgeLogins.some((bridge) => isEqual(password, bridge.password))
        ? undefined
        : { refusal: 'password', username };
    if (client_id.startsWith(bridge_client_prefix)) return { refusal: 'client id' };
    verifier ??= awaitLater(createPasswordVerifier(clock));
    const deps = { ...options, verify: await verifier };
    // the address of the client is not known here: usernames alone share the queue
    const login = await loginQueue.run({ address: '', username, signal }, () =>
      logIn(deps, { username, password, signal }),
    );
    if ('refusal' in login) return login;
    if (!isVhostAllowed(login, params.get('vhost'))) return { refusal: 'virtual host', ...describeOwner(login) };
    if (client_id === '' || (await bindClient(db, client_id, ownerOf(login), new Date(clock())))) return undefined;
    return { refusal: 'client id in use', ...describeOwner(login) };
  };
}

/** Allows the topic exchange, and the queues of the subject's own client ids. */
async function isResourceAllowed(subject: Subject, params: URLSearchParams): Promise<boolean> {
  const [name, permission] = [params.get('name') ?? '', params.get('permission') ?? ''];
  const resource = params.get('resource');
  if (resource === 'exchange') return name === topic_exchange && ['read', 'write'].includes(permission);
  if (resource !== 'queue' || !['configure', 'read', 'write'].includes(permission)) return false;
  const client_id = /^mqtt-subscription-(.+)qos[01]$/s.exec(name)?.[1];
  return client_id !== undefined && subject.isBound(client_id);
}

async function isTopicAllowed(subject: Subject, params: URLSearchParams): Promise<boolean> {
  const permission = params.get('permission');
  const routing_key = params.get('routing_key');
  if (params.get('name') !== topic_exchange || routing_key === null) return false;
  if (permission !== 'read' && permission !== 'write') return false;
  const client_id = params.get('variable_map.client_id');
  if (client_id !== null && !(await subject.isBound(client_id))) return false;
  const shared = (params.get('vhost') ?? shared_vhost) === shared_vhost;
  return isKeyAllowed(subject.account, subject.permissions, { shared, permission, routing_key });
}

/** The owner of client ids: a device keeps its ids when its credentials are replaced. */
function ownerOf({ owner, permissions }: LoggedIn): string {
  return permissions.kind === 'device' ? `device ${permissions.device}` : owner;
}

/** Allows the virtual host of the account, and the shared one unless the account has a dot. */
function isVhostAllowed({ account }: { account: string }, vhost: string | null): boolean {
  return vhost === null || vhost === account || (vhost === shared_vhost && canShareVhost(account));
}
