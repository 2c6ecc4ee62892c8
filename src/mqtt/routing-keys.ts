import { mayPublish, type Permissions } from './permissions.js';

/**
 * RabbitMQ turns topics into routing keys: `/` into `.`, `+` into `*`. What comes back has lost which dots and stars were
 * there before, so permissions are translated into keys and compared there, never the other way round.
 */
type Word = string | typeof one | typeof many;

const one = Symbol('+');
const many = Symbol('#');

/** A filter as the words that it grants: a star that is part of the text is no wildcard. */
function granted(filter: string): Word[] {
  return filter.split('/').flatMap<Word>((level) => {
    if (level === '+') return [one];
    if (level === '#') return [many];
    return level.split('.');
  });
}

/** A routing key as the words that it asks for; in a binding `*` and `#` are wildcards. */
function asked(key: string, binding: boolean): Word[] {
  return key.split('.').map((word) => {
    if (word === '#') return many;
    return binding && word === '*' ? one : word;
  });
}

function covers(wide: readonly Word[], narrow: readonly Word[]): boolean {
  for (const [index, word] of wide.entries()) {
    if (word === many) return true;
    const other = narrow[index];
    if (other === undefined || other === many) return false;
    if (word !== one && word !== other) return false;
  }
  return wide.length === narrow.length;
}

/**
 * Whether all that the words match is an account's: of the words with `@`, or with anything, the last ends with
 * `@account`, as the identifiers of its devices do, and no other's.
 */
function staysIn(account: string, words: readonly Word[]): boolean {
  const last = words.findLast((word) => typeof word === 'symbol' || word.includes('@'));
  return typeof last === 'string' && last.slice(last.lastIndexOf('@') + 1) === account;
}

/** What RabbitMQ asks about a topic. */
export interface RoutingKeyCheck {
  /** Where accounts meet, nothing but the topics of the account's own identifiers is allowed. */
  shared: boolean;
  permission: 'read' | 'write';
  routing_key: string;
}

/** Whether `permissions` of an account allow to publish (write) or subscribe (read) under a routing key. */
export function allowsKey(
  account: string,
  permissions: Permissions,
  { shared, permission, routing_key }: RoutingKeyCheck,
): boolean {
  if (routing_key.startsWith('$')) return false;
  if (permissions.kind === 'key') {
    const at = routing_key.lastIndexOf('.');
    return (
      permission === 'write' && mayPublish(permissions, `${routing_key.slice(0, at)}/${routing_key.slice(at + 1)}`)
    );
  }
  const words = asked(routing_key, permission === 'read');
  if (permission === 'write' && words.includes(many)) return false;
  if (shared && !staysIn(account, words)) return false;
  return permissions.filters.some((filter) => covers(granted(filter), words));
}

/** A topic as RabbitMQ hands it out → the one that it was published to, for streams and status; others stay wrong. */
export function topicFromKey(topic: string): string {
  const at = topic.lastIndexOf('/');
  return `${topic.slice(0, at).replaceAll('/', '.').replaceAll('+', '*')}${topic.slice(at)}`;
}
