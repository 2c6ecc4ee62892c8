/** A request about a command and its answer; code 5030: none came. */
export interface CommandRequest {
  kind: 'create' | 'cancel' | 'done' | 'failed';
  device: string;
  /** Unknown if the answer to a creation is. */
  id: string | undefined;
  code: number;
  /** Times of this process. */
  sent_ms: number;
  answered_ms: number;
}

/** A command that a device got over MQTT. */
export interface Receipt {
  device: string;
  id: string;
}

export interface StoredStatus {
  id: string;
  status: string;
}

export interface LoggedState {
  _id: string;
  type: string;
  data?: { id?: string };
}

const ends = ['done', 'failed', 'expired', 'cancelled'];

/** Compares commands with the answers to requests, with what devices got, and with the events. @returns a line for each difference */
export function findCommandFaults(
  requests: readonly CommandRequest[],
  receipts: readonly Receipt[],
  stored: readonly StoredStatus[],
  events: readonly LoggedState[],
): string[] {
  const statusOf = new Map(stored.map(({ id, status }) => [id, status]));
  return [
    ...checkRequests(requests, statusOf),
    ...checkEvents(stored, events, statusOf),
    ...checkReceipts(requests, receipts, statusOf),
  ];
}

/** Checks that each acknowledged change has happened, and no other. */
function checkRequests(requests: readonly CommandRequest[], statusOf: ReadonlyMap<string, string>): string[] {
  const faults: string[] = [];
  for (const { kind, id, code } of requests) {
    if (id === undefined || code >= 3000) continue;
    const status = statusOf.get(id);
    if (status === undefined) faults.push(`${id} was created and is missing`);
    const expected = kind === 'cancel' ? 'cancelled' : kind;
    if (kind !== 'create' && status !== expected) faults.push(`${id} is ${status}, acknowledged was ${expected}`);
  }
  return faults;
}

/** One event for each state, in their order, up to the stored one. */
function checkEvents(
  stored: readonly StoredStatus[],
  events: readonly LoggedState[],
  statusOf: ReadonlyMap<string, string>,
): string[] {
  const faults: string[] = [];
  const history = new Map<string, string[]>();
  for (const { type, data } of events) {
    const id = data?.id ?? '';
    const states = history.get(id) ?? [];
    states.push(type.slice('command.'.length));
    history.set(id, states);
    if (!statusOf.has(id)) faults.push(`${type} of ${id}, which does not exist`);
  }
  for (const { id, status } of stored) {
    const states = history.get(id) ?? [];
    const isSent = states.includes('sent');
    const allowed = ['created', ...(isSent ? ['sent'] : []), ...(ends.includes(status) ? [status] : [])];
    const isInOrder = states.join() === allowed.join() && (status !== 'sent' || isSent);
    if (!isInOrder) faults.push(`${id} is ${status}: ${states.join()}`);
  }
  return faults;
}

/** No device gets a later command before an earlier one, or one that was not created. */
function checkReceipts(
  requests: readonly CommandRequest[],
  receipts: readonly Receipt[],
  statusOf: ReadonlyMap<string, string>,
): string[] {
  const faults: string[] = [];
  const created = new Map(requests.filter(({ kind }) => kind === 'create').map((request) => [request.id, request]));
  const latest_sent_ms = new Map<string, number>();
  const delivered = new Set<string>();
  for (const { device, id } of receipts) {
    if (!statusOf.has(id)) faults.push(`${device} got ${id}, which does not exist`);
    const request = created.get(id);
    if (request === undefined || delivered.has(id)) continue;
    delivered.add(id);
    if (request.device !== device) faults.push(`${device} got ${id} of ${request.device}`);
    const latest = latest_sent_ms.get(device) ?? 0;
    if (request.answered_ms < latest) faults.push(`${device} got ${id} after a later command`);
    latest_sent_ms.set(device, Math.max(latest, request.sent_ms));
  }
  return faults;
}
