import { decodePercent } from '../lib/percent-decoding.js';
import type { Endpoint, Match } from './context.js';

interface TrieNode {
  literals: Map<string, TrieNode>;
  param?: { name: string; child: TrieNode };
  endpoints: Map<string, Endpoint>;
  allow: string;
  /** Methods that it does not have are those of the parameter beside it. */
  givesWay?: true;
}

/**
 * Builds the route table of the interface: a trie over path segments, literals before parameters. A closing slash is
 * optional; literals are case-sensitive and compared without decoding.
 * @returns a function that matches a method and a path below {base_url}; undefined for unknown paths
 * @throws Error for two endpoints with one method and path, or two names for one parameter
 */
export function createRouter(endpoints: readonly Endpoint[]): (method: string, path: string) => Match | undefined {
  const root = createNode();
  for (const endpoint of endpoints) register(root, endpoint);
  return (method, path) => {
    const params: Record<string, string> = {};
    let isUndecodable = false;
    let node = root;
    let parent = root;
    let last = '';
    for (const segment of segmentsOf(path)) {
      [parent, last] = [node, segment];
      const literal = node.literals.get(segment);
      if (literal !== undefined) {
        node = literal;
        continue;
      }
      if (node.param === undefined || segment === '') return undefined;
      const value = decodePercent(segment);
      if (value === undefined) isUndecodable = true;
      params[node.param.name] = value ?? segment;
      node = node.param.child;
    }
    if (node.allow === '') return undefined;
    const key = method === 'HEAD' ? 'GET' : method;
    const beside = node.givesWay === true ? parent.param : undefined;
    const allow =
      beside === undefined ? node.allow : allowOf([...node.endpoints.keys(), ...beside.child.endpoints.keys()]);
    const endpoint = node.endpoints.get(key);
    if (endpoint !== undefined || beside === undefined) return { endpoint, allow, params, isUndecodable };
    params[beside.name] = last;
    return { endpoint: beside.child.endpoints.get(key), allow, params, isUndecodable };
  };
}

function createNode(): TrieNode {
  return { literals: new Map(), endpoints: new Map(), allow: '' };
}

function register(root: TrieNode, endpoint: Endpoint): void {
  let node = root;
  for (const segment of segmentsOf(endpoint.path)) {
    const name = /^\{(\w+)\}$/.exec(segment)?.[1];
    if (name === undefined) {
      const child = node.literals.get(segment) ?? createNode();
      node.literals.set(segment, child);
      node = child;
      continue;
    }
    node.param ??= { name, child: createNode() };
    if (node.param.name !== name) throw new Error(`${endpoint.path}: {${name}} is {${node.param.name}} elsewhere`);
    node = node.param.child;
  }
  const method = endpoint.method.toUpperCase();
  if (node.endpoints.has(method)) throw new Error(`two endpoints for ${method} ${endpoint.path}`);
  node.endpoints.set(method, endpoint);
  node.allow = allowOf([...node.endpoints.keys()]);
  if (endpoint.givesWay === true) node.givesWay = true;
}

/** The value of an `Allow` header. */
function allowOf(methods: readonly string[]): string {
  return [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS'].join(', ');
}

function segmentsOf(path: string): string[] {
  return path.slice(1, path.endsWith('/') ? -1 : undefined).split('/');
}
