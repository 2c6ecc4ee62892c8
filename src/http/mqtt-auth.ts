import { createHash, timingSafeEqual } from 'node:crypto';
import { type Request, Router } from 'express';
import type { BridgeConfig } from '../config.js';
import type { Database, Log } from '../db/database.js';
import { AppError } from '../errors.js';
import { bridge_prefix, hostAndUser } from '../mqtt/bridge.js';
import { logIn } from '../mqtt/login.js';
import { createPasswordVerifier } from '../mqtt/passwords.js';
import { devicePermissions, keyPermissions, type Permissions } from '../mqtt/permissions.js';
import { allowsKey } from '../mqtt/routing-keys.js';
import type { Keyring } from '../repositories/api-keys.js';
import { bindClient, isBoundClient, prepareClients } from '../repositories/client-bindings.js';
import { findDeviceLogin } from '../repositories/mqtt-credentials.js';
import { permits } from '../schema/operation.js';
import type { AreAncestorsEnabled } from '../telemetry/enabled-cache.js';
import { readBody } from './body.js';
import { localsOf } from './context.js';

interface Options {
  /** The endpoints are not there without. */
  secret: string | undefined;
  /** The bridge logs in at the broker, too. */
  bridges: readonly BridgeConfig[] | undefined;
  db: Database;
  keyring: Keyring;
  enabledAbove: AreAncestorsEnabled;
  log: Log;
  /** Epoch milliseconds. */
  clock: () => number;
}

type Question = (given: URLSearchParams) => Promise<boolean>;

/** Who asks: what a login may do, and whose client ids it uses. */
interface Party {
  account: string;
  owner: string;
  permissions: Permissions;
}

const body_limit_bytes = 16 * 1024;
const shared_vhost = '/';
const topic_exchange = 'amq.topic';

/**
 * What RabbitMQ's HTTP auth backend asks: /mqtt-auth/user, vhost, resource and topic, with the secret in the query, GET or
 * POST, answered `allow` or `deny` (docs/external-broker.md). Whatever fails is `deny`.
 */
export function mqttAuthRouter(options: Options): Router {
  const { secret, log } = options;
  const router = Router({ caseSensitive: true });
  const questions = secret === undefined ? new Map<string, Question>() : questionsOf(options);
  router.all('/mqtt-auth/:question', async (request, response) => {
    const question = questions.get(request.params.question);
    if (secret === undefined || question === undefined) throw new AppError('notFound');
    localsOf(response).route = `/mqtt-auth/${request.params.question}`;
    if (request.method !== 'GET' && request.method !== 'POST') {
      response.setHeader('Allow', 'GET, POST');
      throw new AppError('methodNotAllowed');
    }
    const query = queryOf(request);
    if (!isEqual(query.get('secret') ?? '', secret)) throw new AppError('unauthorized');
    const given =
      request.method === 'GET' ? query : new URLSearchParams(String(await readBody(request, body_limit_bytes)));
    const allowed = await question(given).catch((error: unknown) => {
      log.error({ request_id: localsOf(response).request_id, err: error }, 'MQTT authorisation failed; denied');
      return false;
    });
    response.type('text/plain').send(allowed ? 'allow' : 'deny');
  });
  router.use('/mqtt-auth', () => {
    throw new AppError('notFound');
  });
  return router;
}

/** RabbitMQ appends `?…` to the address of a GET, whatever stands there. */
function queryOf({ url }: Request): URLSearchParams {
  const at = url.indexOf('?');
  return new URLSearchParams(at < 0 ? '' : url.slice(at + 1).replace('?', '&'));
}

function isEqual(given: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}

function questionsOf({ bridges: given, db, keyring, enabledAbove, clock }: Options): Map<string, Question> {
  const bridges = (given ?? []).map(({ username, password }) => ({ username: hostAndUser(username).user, password }));
  let verifier: ReturnType<typeof createPasswordVerifier> | undefined;
  let prepared: Promise<void> | undefined;

  async function prepare(): Promise<void> {
    prepared ??= prepareClients(db);
    await prepared.catch((error: unknown) => {
      prepared = undefined;
      throw error;
    });
  }

  /** Whom a name belongs to that has logged in before, if it still may. */
  async function identify(username: string): Promise<Party | undefined> {
    const device = await findDeviceLogin(db, username);
    if (device === undefined) {
      const principal = await keyring.find(username, clock() / 1000);
      if (principal === undefined || !permits(principal.scope, 'stream')) return undefined;
      return { account: principal.account, owner: ownerOf(principal.key_id), permissions: keyPermissions(username) };
    }
    const { account, field, id } = device.parent;
    if (!device.enabled || !(await enabledAbove(account, field, id))) return undefined;
    return { account, owner: ownerOf(device), permissions: devicePermissions(device) };
  }

  /** Asks `test` about a name and its virtual host; the bridge may do everything. */
  function about(test: (party: Party, given: URLSearchParams) => Promise<boolean> | boolean): Question {
    return async (given) => {
      const username = given.get('username') ?? '';
      if (bridges.some((bridge) => bridge.username === username)) return true;
      const party = await identify(username);
      return party !== undefined && mayUse(party, given.get('vhost')) && test(party, given);
    };
  }

  const isBound = async ({ owner }: Party, client_id: string) => isBoundClient(db, client_id, owner, new Date(clock()));

  return new Map<string, Question>([
    ['user', user],
    // what comes without a client id is no MQTT, and AMQP would let a message name further keys that nobody asks about
    ['vhost', about((party, given) => isBound(party, given.get('client_id') ?? ''))],
    ['resource', about(resource)],
    ['topic', about(topic)],
  ]);

  async function user(given: URLSearchParams): Promise<boolean> {
    const [username, password, client_id] = ['username', 'password', 'client_id'].map((name) => given.get(name) ?? '');
    if (username === undefined || password === undefined || client_id === undefined) return false;
    const named = bridges.filter((bridge) => bridge.username === username);
    if (named.length > 0) return named.some((bridge) => isEqual(password, bridge.password));
    if (client_id.startsWith(bridge_prefix)) return false;
    verifier ??= createPasswordVerifier(clock);
    const login = await logIn({ db, keyring, enabledAbove, clock, verify: await verifier }, username, password);
    if (typeof login === 'string' || !mayUse(login, given.get('vhost'))) return false;
    if (client_id === '') return true;
    await prepare();
    const { permissions } = login;
    const owner = permissions.kind === 'device' ? ownerOf(permissions) : login.owner;
    return bindClient(db, client_id, owner, new Date(clock()));
  }

  async function resource(party: Party, given: URLSearchParams): Promise<boolean> {
    const [name, permission] = [given.get('name') ?? '', given.get('permission') ?? ''];
    if (given.get('resource') === 'exchange') return name === topic_exchange && ['read', 'write'].includes(permission);
    if (given.get('resource') !== 'queue' || !['configure', 'read', 'write'].includes(permission)) return false;
    const client_id = /^mqtt-subscription-(.+)qos[01]$/s.exec(name)?.[1];
    return client_id !== undefined && isBound(party, client_id);
  }

  async function topic(party: Party, given: URLSearchParams): Promise<boolean> {
    const permission = given.get('permission');
    const routing_key = given.get('routing_key');
    if (given.get('name') !== topic_exchange || routing_key === null) return false;
    if (permission !== 'read' && permission !== 'write') return false;
    const client_id = given.get('variable_map.client_id');
    if (client_id !== null && !(await isBound(party, client_id))) return false;
    const shared = (given.get('vhost') ?? shared_vhost) === shared_vhost;
    return allowsKey(party.account, party.permissions, { shared, permission, routing_key });
  }
}

/** A device keeps its client ids when it gets other credentials. */
function ownerOf(who: string | { device: string }): string {
  return typeof who === 'string' ? `key ${who}` : `device ${who.device}`;
}

/** The virtual host that all share, or the account's own. */
function mayUse({ account }: { account: string }, vhost: string | null): boolean {
  return vhost === null || vhost === shared_vhost || vhost === account;
}
