import { AppError } from '../errors.js';
import type { LockKeys } from '../lib/keyed-mutex.js';
import type { OperationContext } from '../objects/context.js';
import { device, resources } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import type { Ingested } from '../streams/ingest.js';
import { type ParsedStreams, parseStreams, streamWithDevice } from '../streams/parse-streams.js';
import { type Submission, unknownDevice } from '../streams/senders.js';
import { type ImportOptions, type ImportOutcome, type ItemActions, moveToAccount } from './import-line.js';

/** The type of lines that hold streams. */
export const streamLine = { ...streamWithDevice, legacy: {} };

/** A stream to import. */
export interface StreamItem extends ParsedStreams {
  keys: LockKeys;
}

/** Reads a line that holds a stream. @throws AppError invalid (4003) */
export function parseStreamLine(account: string, options: ImportOptions, line: Values): StreamItem {
  const { on_conflict, from_account } = options;
  if (on_conflict !== 'skip' && on_conflict !== 'create')
    throw new AppError('invalid', { on_conflict: 'must be skip or create for streams' });
  const { resource: _named, ...fields } = line;
  const sent = {
    ...fields,
    ...('device' in fields && { device: moveToAccount(fields.device, from_account, account) }),
  };
  const parsed = parseStreams(sent, { requiresAt: true });
  const [{ device: id, _t, at } = {}] = parsed.entries;
  // of two lines with one stream the second is left out
  const exclusive = on_conflict === 'skip' ? [`stream ${_t} ${at} ${id}`] : [];
  return { ...parsed, keys: { exclusive, shared: [`devices ${id}`] } };
}

/** Stores the stream of a line, or for a dry run only finds out whether it would be. */
export type StreamHandler = (ctx: OperationContext, item: StreamItem) => Promise<ImportOutcome>;

/** Creates the function that stores streams of lines (reference/import.md#streams). */
export function createStreamHandler(
  { on_conflict }: ImportOptions,
  ingest: (submission: Submission) => Promise<Ingested>,
  isDryRun = false,
): StreamHandler {
  return async ({ account, limit, user, now }, { entries, fieldOf }) => {
    const skipsRepeated = on_conflict === 'skip';
    const mode = { skipsRepeated, isImport: true, isDryRun };
    const { created } = await ingest({ entries, fieldOf, account, limit, user, now, ...mode });
    return { code: created > 0 ? 2001 : 2007 };
  };
}

/** Memory of one simulated stream, nearly. */
const bytes_per_stream = 200;

/**
 * Adds to a handler what earlier lines of a dry run would have changed: streams, and devices that do not exist yet.
 * @param reserve accounts for memory
 */
export function withSimulation(
  handle: StreamHandler,
  { find }: ItemActions<Values>,
  reserve: (bytes: number) => void,
): StreamHandler {
  const stored = new Set<string>();
  return async (ctx, item) => {
    const [key] = item.keys.exclusive;
    if (key !== undefined && stored.has(key)) return { code: 2007 };
    const outcome = await handle(ctx, item).catch(async (error: unknown): Promise<ImportOutcome> => {
      if (!(error instanceof AppError) || error.details.device !== unknownDevice) throw error;
      const [{ device: id = '', checksum } = {}] = item.entries;
      const sender = await find(ctx, device, id);
      if (sender === undefined || checksum !== undefined) throw error;
      if (!(await isEnabled(ctx, find, device, sender))) throw new AppError('invalid', { device: 'disabled' });
      return { code: 2001 };
    });
    if (key !== undefined && outcome.code === 2001) {
      reserve(bytes_per_stream);
      stored.add(key);
    }
    return outcome;
  };
}

async function isEnabled(
  ctx: OperationContext,
  find: ItemActions<Values>['find'],
  resource: Resource,
  object: Values,
): Promise<boolean> {
  if (object.enabled === false) return false;
  for (const field of resource.parents) {
    const above = resources.find(({ plural }) => plural === resource.fields[field]?.references?.plural);
    const parent = above && typeof object[field] === 'string' ? await find(ctx, above, object[field]) : undefined;
    if (above && parent && !(await isEnabled(ctx, find, above, parent))) return false;
  }
  return true;
}
