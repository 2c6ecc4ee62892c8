/** A request and its answer; code 5030: none came. */
export interface SentRequest {
  method: 'POST' | 'PUT' | 'DELETE';
  plural: string;
  id: string;
  code: number;
  request_id: string;
  /** The version that an update has answered. */
  version: number | undefined;
  /** Time until the answer. */
  took_ms: number;
}

export interface LoggedEvent {
  _id: string;
  type: string;
  resource: string;
  id_developer: string;
  request_id?: string;
  data?: { version?: number };
}

/** An object of the database when nothing happens any more. */
export interface StoredObject {
  resource: string;
  id_developer: string;
  version: number;
}

const kindOf = { POST: 'created', PUT: 'updated', DELETE: 'deleted' } as const;

/**
 * Compares the log with the answers to requests and with the stored objects. @param others identifiers of objects that were
 * created otherwise @returns a line for each difference
 */
export function findFaults(
  requests: readonly SentRequest[],
  events: readonly LoggedEvent[],
  stored: readonly StoredObject[],
  others: readonly string[] = [],
): string[] {
  const ids = new Set([...others, ...requests.map(({ id }) => id)]);
  const doubled = stored.filter(({ id_developer }) => !ids.has(id_developer));
  return [
    ...checkRequests(requests, events),
    ...checkObjects(events, stored),
    ...doubled.map(({ resource, id_developer }) => `nobody has created ${resource} ${id_developer}`),
  ];
}

/** One event for each acknowledged change, none for what was refused. */
function checkRequests(requests: readonly SentRequest[], events: readonly LoggedEvent[]): string[] {
  const faults: string[] = [];
  const byRequest = new Map<string, LoggedEvent[]>();
  for (const event of events) {
    const { request_id = '' } = event;
    byRequest.set(request_id, [...(byRequest.get(request_id) ?? []), event]);
  }
  for (const request of requests) {
    const { method, plural, id, code, request_id, version } = request;
    if (code >= 5000) continue;
    // clients change only what they have created, and send only versions that are certain
    if (code === 4005) faults.push(`a conflict with nobody: ${describe(request)}`);
    const caused = byRequest.get(request_id) ?? [];
    const type = `${plural.slice(0, -1)}.${kindOf[method]}`;
    const own = caused.filter((event) => event.type === type && event.id_developer === id);
    const expected = code < 3000 ? 1 : 0;
    if (own.length !== expected) faults.push(`${own.length} events ${type} of ${describe(request)}`);
    // an object whose parent was deleted in between is deleted with it; only deletions reach further objects
    const others = caused.filter((event) => !own.includes(event) && !event.type.endsWith('.deleted'));
    if (others.length > 0) faults.push(`${describe(request)} caused ${others.map((event) => event.type).join()}`);
    const logged = own[0]?.data?.version;
    if (method === 'PUT' && expected === 1 && logged !== version)
      faults.push(`version ${logged} in the event of ${describe(request)}`);
  }
  return faults;
}

function describe({ method, plural, id, code, version }: SentRequest): string {
  return `${method} ${plural} ${id} (${code}, version ${version})`;
}

/** The events of each object begin with its creation, count its versions, and end with its deletion. */
function checkObjects(events: readonly LoggedEvent[], stored: readonly StoredObject[]): string[] {
  const faults: string[] = [];
  const history = new Map<string, LoggedEvent[]>();
  for (const event of events) {
    if (!['project', 'service', 'group', 'asset', 'device'].includes(event.resource)) continue;
    // time alone causes them
    if (event.type.endsWith('.status_changed')) continue;
    const key = `${event.resource} ${event.id_developer}`;
    const list = history.get(key) ?? [];
    history.set(key, list);
    list.push(event);
  }
  const versions = new Map(
    stored.map(({ resource, id_developer, version }) => [`${resource} ${id_developer}`, version]),
  );
  for (const [key, list] of history) {
    const kinds = list.map(({ type, data }) => `${type.split('.')[1]}${data?.version ?? ''}`);
    const updates = list.filter(({ type }) => type.endsWith('.updated')).length;
    const isDeleted = kinds.at(-1) === 'deleted';
    const expected = [
      'created',
      ...Array.from({ length: updates }, (_, index) => `updated${index + 1}`),
      ...(isDeleted ? ['deleted'] : []),
    ];
    if (kinds.join() !== expected.join()) faults.push(`${key}: ${kinds.join()}`);
    const version = versions.get(key);
    if (isDeleted !== (version === undefined))
      faults.push(`${key} is stored: ${version !== undefined}, ${kinds.join()}`);
    if (version !== undefined && version !== updates) faults.push(`${key} has version ${version}: ${kinds.join()}`);
  }
  for (const key of versions.keys()) if (!history.has(key)) faults.push(`${key} is stored without an event`);
  return faults;
}
