import { AppError } from '../errors.js';
import type { OperationContext } from '../objects/context.js';
import { device, resources } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import { type Entry, parseStreams, streamWithDevice } from '../streams/parse-streams.js';
import { type Submission, unknownDevice } from '../streams/senders.js';
import { type ImportOptions, type ItemActions, type LineOutcome, moveToAccount } from './import-line.js';

/** The type of lines that hold streams. */
export const streamLine = { ...streamWithDevice, legacy: {} };

/** A stream to import. */
interface StreamItem {
  entry: Entry;
  /** The second of two lines with one key is left out. */
  key: string | undefined;
}

/** The stream of a line, or what is wrong with the line. */
type ParsedLine = StreamItem | AppError;

/** Reads lines that hold streams. @returns also the keys that they depend on */
export function parseStreamLines(account: string, options: ImportOptions, lines: readonly Values[]) {
  const items = lines.map((line): ParsedLine => {
    try {
      return parseStreamLine(account, options, line);
    } catch (error) {
      if (error instanceof AppError) return error;
      throw error;
    }
  });
  const streams = items.filter(isStreamItem);
  const exclusive = streams.flatMap(({ key }) => key ?? []);
  return { items, keys: { exclusive, shared: streams.map(({ entry }) => `devices ${entry.device}`) } };
}

const isStreamItem = (item: ParsedLine): item is StreamItem => !(item instanceof AppError);

/** @throws AppError invalid (4003) */
function parseStreamLine(account: string, { on_conflict, from_account }: ImportOptions, line: Values): StreamItem {
  if (on_conflict !== 'skip' && on_conflict !== 'create')
    throw new AppError('invalid', { on_conflict: 'must be skip or create for streams' });
  const { resource: _named, ...sent } = line;
  if ('device' in sent) sent.device = moveToAccount(sent.device, from_account, account);
  const [entry] = parseStreams(sent, { requiresAt: true }).entries as [Entry];
  return { entry, key: on_conflict === 'skip' ? `stream ${entry._t} ${entry.at} ${entry.device}` : undefined };
}

const created: LineOutcome = { code: 2001 };
const skipped: LineOutcome = { code: 2007 };

/** Stores the streams of lines, or for a dry run only finds out whether they would be. @returns their outcomes in order */
export type StreamHandler = (ctx: OperationContext, items: readonly ParsedLine[]) => Promise<readonly LineOutcome[]>;

/**
 * Creates the function that stores streams of lines together (reference/import.md#streams): those that are refused fail, and
 * the others are stored without them. It throws what makes all of them fail.
 */
export function createStreamHandler(
  { on_conflict }: ImportOptions,
  ingest: (submission: Submission) => Promise<boolean[]>,
  isDryRun = false,
): StreamHandler {
  const mode = { skipsRepeated: on_conflict === 'skip', isImport: true, isDryRun };
  return async ({ account, limit, user, now }, items) => {
    const outcomes = new Map<ParsedLine, LineOutcome>();
    for (let rest = items.filter(isStreamItem); rest.length > 0; rest = rest.filter((item) => !outcomes.has(item))) {
      const entries = rest.map(({ entry }) => entry);
      const fieldOf = (index: number, field: string) => `${index}.${field}`;
      const report = (index: number, outcome: LineOutcome) => outcomes.set(rest[index] as StreamItem, outcome);
      try {
        const stored = await ingest({ entries, fieldOf, account, limit, user, now, ...mode });
        for (const [index, isStored] of stored.entries()) report(index, isStored ? created : skipped);
      } catch (error) {
        const faults = error instanceof AppError && error.failure === 'invalid' ? Object.entries(error.details) : [];
        if (faults.length === 0) throw error;
        for (const [field, fault] of faults) {
          const [index, name = ''] = field.split('.');
          report(Number(index), new AppError('invalid', { [name]: fault }));
        }
      }
    }
    return items.map((item) => outcomes.get(item) ?? (item as AppError));
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
  const findOutcome = async (ctx: OperationContext, item: ParsedLine, outcome: LineOutcome): Promise<LineOutcome> => {
    const isUnknown = outcome instanceof AppError && outcome.details.device === unknownDevice;
    if (!isStreamItem(item) || !isUnknown) return outcome;
    const sender = await find(ctx, device, item.entry.device);
    if (sender === undefined || item.entry.checksum !== undefined) return outcome;
    const accepts = await isEnabled(ctx, find, device, sender);
    return accepts ? created : new AppError('invalid', { device: 'disabled' });
  };
  return async (ctx, items) => {
    const outcomes = await handle(ctx, items);
    const found = await Promise.all(items.map((item, index) => findOutcome(ctx, item, outcomes[index] as LineOutcome)));
    return found.map((outcome, index) => {
      const { key } = items[index] as StreamItem;
      if (key === undefined || outcome instanceof AppError) return outcome;
      if (stored.has(key)) return skipped;
      if (outcome.code === 2001) {
        reserve(bytes_per_stream);
        stored.add(key);
      }
      return outcome;
    });
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
