import { type TopicLevels, topicsOf } from '../protocol/topics.js';
import { canPublish, type TopicPermissions } from '../sessions/permissions.js';

/**
 * RabbitMQ maps topics to routing keys: `/` to `.`, `+` to `*`. The mapping cannot be inverted, because a topic may hold
 * dots and stars of its own. So filters are translated into keys and compared as keys.
 */
type Word = string | typeof SINGLE | typeof MULTI;

const SINGLE = Symbol('+');
const MULTI = Symbol('#');

/** Translates a filter into words; a star in a level's text is no wildcard. */
function filterWords(levels: TopicLevels): Word[] {
  return levels.flatMap<Word>((level) => {
    if (level === '+') return [SINGLE];
    if (level === '#') return [MULTI];
    return level.split('.');
  });
}

/** Splits a routing key into words; in the key of a binding `*` and `#` are wildcards. */
function keyWords(key: string, isBinding: boolean): Word[] {
  return key.split('.').map((word) => {
    if (word === '#') return MULTI;
    return isBinding && word === '*' ? SINGLE : word;
  });
}

function coversWords(wide: readonly Word[], narrow: readonly Word[]): boolean {
  for (const [index, word] of wide.entries()) {
    if (word === MULTI) return true;
    const other = narrow[index];
    if (other === undefined || other === MULTI) return false;
    if (word !== SINGLE && word !== other) return false;
  }
  return wide.length === narrow.length;
}

/**
 * Reports whether an account may use a virtual host together with others. Dots separate words, so there `pump@acme.x` is
 * both a device of `acme.x` and a topic of `acme` (docs/external-broker.md).
 */
export function canShareVhost(account: string): boolean {
  return !account.includes('.');
}

/**
 * Reports whether all keys that the words match belong to the account: the last word that is a wildcard or has an `@`
 * must end with `@account`, as identifiers of the account's devices do.
 */
function isWithinAccount(account: string, words: readonly Word[]): boolean {
  const last = words.findLast((word) => typeof word === 'symbol' || word.includes('@'));
  return typeof last === 'string' && last.slice(last.lastIndexOf('@') + 1) === account;
}

/** Keys of topics to which only the service publishes. */
const serviceKey = /@.*\.(?:commands|state\.desired)$/s;

/** RabbitMQ's question about a topic. */
export interface RoutingKeyCheck {
  /** The virtual host is shared by accounts: only topics of the account's own identifiers are allowed. */
  shared: boolean;
  permission: 'read' | 'write';
  routing_key: string;
}

/** Decides whether permissions of an account cover publishing (write) or subscribing (read) under a routing key. */
export function isKeyAllowed(
  account: string,
  permissions: TopicPermissions,
  { shared, permission, routing_key }: RoutingKeyCheck,
): boolean {
  if (routing_key.startsWith('$')) return false;
  if (permissions.kind === 'key') {
    const at = routing_key.lastIndexOf('.');
    return (
      permission === 'write' && canPublish(permissions, `${routing_key.slice(0, at)}/${routing_key.slice(at + 1)}`)
    );
  }
  const words = keyWords(routing_key, permission === 'read');
  if (permission === 'write' && (words.includes(MULTI) || serviceKey.test(routing_key))) return false;
  if (shared && !isWithinAccount(account, words)) return false;
  const filters = [...topicsOf(permissions.device).map((topic) => topic.split('/')), ...permissions.filters];
  return filters.some((filter) => coversWords(filterWords(filter), words));
}

/** Restores the topic of streams and status from RabbitMQ's form; other topics are not restored. */
export function topicFromKey(topic: string): string {
  const at = topic.lastIndexOf('/');
  return `${topic.slice(0, at).replaceAll('/', '.').replaceAll('+', '*')}${topic.slice(at)}`;
}
