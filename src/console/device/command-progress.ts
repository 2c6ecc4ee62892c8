import { request } from '../api/client.js';
import type { ListAnswer } from '../api/resources.js';
import { wait } from '../lib/wait.js';

/** An event of a command, as the log has it. */
export interface CommandEvent {
  id: string;
  type: string;
  id_developer: string;
  request_id?: string;
  data: { id: string; name: string };
}

/** In the order in which a command goes through them. */
export const commandStatuses = ['queued', 'sent', 'done', 'failed', 'expired', 'cancelled'] as const;
type CommandStatus = (typeof commandStatuses)[number];

/** Commands that one request has queued, by their ids. */
export type SentCommands = ReadonlyMap<string, { device: string; status: CommandStatus }>;

const page_size = 1000;
const poll_ms = 1000;
const fields = 'id,type,id_developer,request_id,data';

/** Applies events in the order of the log. */
function applyEvents(sent: SentCommands, events: readonly CommandEvent[], request_id: string): SentCommands {
  const commands = new Map(sent);
  for (const { type, id_developer: device, data, ...event } of events) {
    if (type === 'command.created' && event.request_id === request_id)
      commands.set(data.id, { device, status: 'queued' });
    const status = commandStatuses.find((name) => type === `command.${name}`);
    if (status !== undefined && commands.has(data.id)) commands.set(data.id, { device, status });
  }
  return commands;
}

/** Returns the id of the last event, after which a reader begins. */
export async function findLastEvent(signal: AbortSignal): Promise<string> {
  const query = { max: 1, fields: 'id' };
  const { result } = await request<ListAnswer<{ id: string }>>('GET', '/events/', { query, signal });
  return result[0]?.id ?? '0'.repeat(18);
}

interface Following {
  /** Number of commands that are expected. */
  count: number;
  request_id: string;
  /** Id of an event before the request. */
  after: string;
  signal: AbortSignal;
  onProgress(sent: SentCommands): void;
}

/** Reads the log until the signal ends it, or as many commands as expected have ended. */
export async function followCommands({ count, request_id, after, signal, onProgress }: Following): Promise<void> {
  let [sent, last]: [SentCommands, string] = [new Map(), after];
  while (countCommands(sent, isEnded) < count) {
    const query = { type: 'command.', after: last, max: page_size, fields };
    const { result } = await request<ListAnswer<CommandEvent>>('GET', '/events/', { query, signal });
    last = result.at(-1)?.id ?? last;
    sent = applyEvents(sent, result, request_id);
    onProgress(sent);
    if (result.length < page_size) await wait(poll_ms, signal);
    signal.throwIfAborted();
  }
}

const isEnded = (status: CommandStatus) => status !== 'queued' && status !== 'sent';

/** Counts the commands whose status fits. */
export function countCommands(sent: SentCommands, fits: (status: CommandStatus) => boolean): number {
  return [...sent.values()].filter(({ status }) => fits(status)).length;
}
