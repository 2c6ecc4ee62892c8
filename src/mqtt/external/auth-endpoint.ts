import { createHash, timingSafeEqual } from 'node:crypto';
import { type Request, Router } from 'express';
import type { BridgeConfig } from '../../config.js';
import type { Database, Log } from '../../db/database.js';
import { AppError } from '../../errors.js';
import { readBody } from '../../http/body.js';
import { createCloseSignal } from '../../http/close-signal.js';
import { localsOf } from '../../http/context.js';
import { awaitLater } from '../../lib/promises.js';
import { createRateLimitedLog } from '../../lib/rate-limited-log.js';
import type { AreAncestorsEnabled } from '../../objects/ancestors.js';
import type { Keyring } from '../../objects/api-keys.js';
import { findKeyLogin, logIn } from '../login/login.js';
import { createLoginQueue } from '../login/login-queue.js';
import { createPasswordVerifier } from '../login/passwords.js';
import { createDevicePermissions, type TopicPermissions } from '../login/permissions.js';
import { findDeviceLogin } from '../store/credentials.js';
import { bridge_client_prefix, splitUsername } from './bridge-login.js';
import { bindClient, isBoundClient } from './client-bindings.js';
import { canShareVhost, isKeyAllowed } from './routing-keys.js';

interface Options {
  /** Without it the endpoints answer 404. */
  secret: string | undefined;
  /** Logins of the bridge, which may do everything. */
  bridges: readonly BridgeConfig[] | undefined;
  db: Database;
  keyring: Keyring;
  areAncestorsEnabled: AreAncestorsEnabled;
  log: Log;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** @param signal aborts when the client is gone */
type AuthCheck = (params: URLSearchParams, signal: AbortSignal) => Promise<boolean>;

/** The owner of a username, with its permissions and the owner of its client ids. */
interface Subject {
  account: string;
  owner: string;
  permissions: TopicPermissions;
}

type SubjectCheck = (subject: Subject, params: URLSearchParams) => Promise<boolean> | boolean;

const body_limit_bytes = 16 * 1024;
const shared_vhost = '/';
const topic_exchange = 'amq.topic';

/**
 * The endpoints of RabbitMQ's HTTP auth backend: /mqtt-auth/user, vhost, resource and topic, GET or POST with the secret
 * in the query, answered with `allow` or `deny` (docs/external-broker.md). Every failure is `deny`.
 */
export function mqttAuthRouter(options: Options): Router {
  const { secret, log } = options;
  const logFailure = createRateLimitedLog(log, 'error');
  const router = Router({ caseSensitive: true });
  const checks = secret === undefined ? new Map<string, AuthCheck>() : createChecks(options);
  router.all('/mqtt-auth/:question', async (request, response) => {
    const check = checks.get(request.params.question);
    if (secret === undefined || check === undefined) throw new AppError('notFound');
    localsOf(response).route = `/mqtt-auth/${request.params.question}`;
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
    const isAllowed = await check(params, closed).catch((error: unknown) => {
      if (closed.aborted) return false;
      logFailure('MQTT authorization failed; denied', { request_id: localsOf(response).request_id, err: error });
      return false;
    });
    response.type('text/plain').send(isAllowed ? 'allow' : 'deny');
  });
  router.use('/mqtt-auth', () => {
    throw new AppError('notFound');
  });
  return router;
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
  const { db, keyring, areAncestorsEnabled, clock } = options;
  const bridges = (options.bridges ?? []).map(({ username, password }) => ({
    username: splitUsername(username).user,
    password,
  }));

  /** Finds the owner of a username that logged in before, unless it has lost its access. */
  async function identify(username: string): Promise<Subject | undefined> {
    const device = await findDeviceLogin(db, username);
    if (device === undefined) {
      const key = await findKeyLogin({ db, keyring, areAncestorsEnabled, clock }, username);
      return typeof key === 'string' ? undefined : { ...key, owner: ownerOf(key) };
    }
    const { account, ancestors } = device;
    if (!device.enabled || !(await areAncestorsEnabled(account, ancestors))) return undefined;
    const permissions = createDevicePermissions(device);
    return { account, owner: ownerOf({ owner: '', permissions }), permissions };
  }

  /** Applies `check` to the owner of the username, in a virtual host it may use; allows the bridge everything. */
  function forSubject(check: SubjectCheck): AuthCheck {
    return async (params) => {
      const username = params.get('username') ?? '';
      if (bridges.some((bridge) => bridge.username === username)) return true;
      const subject = await identify(username);
      return subject !== undefined && isVhostAllowed(subject, params.get('vhost')) && check(subject, params);
    };
  }

  const isBound = ({ owner }: Subject, client_id: string) => isBoundClient(db, client_id, owner, new Date(clock()));

  return new Map<string, AuthCheck>([
    ['user', createLoginCheck(options, bridges)],
    // only MQTT sends a client id; with AMQP a message may carry further routing keys, which are never checked
    ['vhost', forSubject((subject, params) => isBound(subject, params.get('client_id') ?? ''))],
    ['resource', forSubject((subject, params) => isResourceAllowed(params, (id) => isBound(subject, id)))],
    ['topic', forSubject((subject, params) => isTopicAllowed(subject, params, (id) => isBound(subject, id)))],
  ]);
}

/** Checks username and password, and binds the client id to its owner. */
function createLoginCheck(
  { db, keyring, areAncestorsEnabled, clock }: Options,
  bridges: readonly { username: string; password: string }[],
): AuthCheck {
  let verifier: ReturnType<typeof createPasswordVerifier> | undefined;
  const loginQueue = createLoginQueue();

  return async (params, signal) => {
    const [username = '', password = '', client_id = ''] = ['username', 'password', 'client_id'].map(
      (name) => params.get(name) ?? '',
    );
    const bridgeLogins = bridges.filter((bridge) => bridge.username === username);
    if (bridgeLogins.length > 0) return bridgeLogins.some((bridge) => isEqual(password, bridge.password));
    if (client_id.startsWith(bridge_client_prefix)) return false;
    verifier ??= awaitLater(createPasswordVerifier(clock));
    const deps = { db, keyring, areAncestorsEnabled, clock, verify: await verifier };
    // the address of the client is not known here: usernames alone share the queue
    const login = await loginQueue.run({ address: '', username, signal }, () =>
      logIn(deps, { username, password, signal }),
    );
    if (typeof login === 'string' || !isVhostAllowed(login, params.get('vhost'))) return false;
    if (client_id === '') return true;
    return bindClient(db, client_id, ownerOf(login), new Date(clock()));
  };
}

type IsBound = (client_id: string) => Promise<boolean>;

/** Allows the topic exchange, and the queues of the subject's own client ids. */
async function isResourceAllowed(params: URLSearchParams, isBound: IsBound): Promise<boolean> {
  const [name, permission] = [params.get('name') ?? '', params.get('permission') ?? ''];
  const resource = params.get('resource');
  if (resource === 'exchange') return name === topic_exchange && ['read', 'write'].includes(permission);
  if (resource !== 'queue' || !['configure', 'read', 'write'].includes(permission)) return false;
  const client_id = /^mqtt-subscription-(.+)qos[01]$/s.exec(name)?.[1];
  return client_id !== undefined && isBound(client_id);
}

async function isTopicAllowed(subject: Subject, params: URLSearchParams, isBound: IsBound): Promise<boolean> {
  const permission = params.get('permission');
  const routing_key = params.get('routing_key');
  if (params.get('name') !== topic_exchange || routing_key === null) return false;
  if (permission !== 'read' && permission !== 'write') return false;
  const client_id = params.get('variable_map.client_id');
  if (client_id !== null && !(await isBound(client_id))) return false;
  const shared = (params.get('vhost') ?? shared_vhost) === shared_vhost;
  return isKeyAllowed(subject.account, subject.permissions, { shared, permission, routing_key });
}

/** The owner of client ids: a device keeps its ids when its credentials are replaced. */
function ownerOf({ owner, permissions }: Pick<Subject, 'owner' | 'permissions'>): string {
  return permissions.kind === 'device' ? `device ${permissions.device}` : owner;
}

/** Allows the virtual host of the account, and the shared one unless the account has a dot. */
function isVhostAllowed({ account }: { account: string }, vhost: string | null): boolean {
  return vhost === null || vhost === account || (vhost === shared_vhost && canShareVhost(account));
}
