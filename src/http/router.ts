import type { Endpoint, Match } from './context.js';

interface TrieNode {
  literals: Map<string, TrieNode>;
  param?: { name: string; child: TrieNode };
  endpoints: Map<string, Endpoint>;
  allow: string;
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
    for (const segment of segmentsOf(path)) {
      const literal = node.literals.get(segment);
      if (literal !== undefined) {
        node = literal;
        continue;
      }
      if (node.param === undefined || segment === '') return undefined;
      const value = decodeSegment(segment);
      if (value === undefined) isUndecodable = true;
      params[node.param.name] = value ?? segment;
      node = node.param.child;
    }
    if (node.allow === '') return undefined;
    const endpoint = node.endpoints.get(method === 'HEAD' ? 'GET' : method);
    return { endpoint, allow: node.allow, params, isUndecodable };
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
  const methods = [...node.endpoints.keys()];
  node.allow = [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS'].join(', ');
}

function segmentsOf(path: string): string[] {
  return path.slice(1, path.endsWith('/') ? -1 : undefined).split('/');
}

/** @returns undefined unless the text is percent-encoded UTF-8 */
function decodeSegment(segment: string): string | undefined {
  if (!segment.includes('%')) return segment;
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}
