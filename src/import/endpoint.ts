import type { Log } from '../db/database.js';
import { toAppError } from '../db/driver-errors.js';
import { AppError, failures } from '../errors.js';
import { callerOf } from '../http/admission.js';
import { type Endpoint, type EndpointDeps, localsOf, type RequestContext } from '../http/context.js';
import { createKeyedMutex } from '../lib/keyed-mutex.js';
import { createRateLimitedLog, type LogLine } from '../lib/rate-limited-log.js';
import { createShares, type Release, type Reservation, type Shares } from '../lib/shares.js';
import { runWithTimeLimit, TimeLimitError } from '../lib/time-limit.js';
import { isAccountName } from '../resources/api-key.js';
import { withSentNames } from '../schema/body.js';
import { choice, textMatching } from '../schema/fields/text.js';
import { type FieldType, type Values, withDocumentation } from '../schema/fields.js';
import { parseQuery } from '../schema/query.js';
import type { Submission } from '../streams/senders.js';
import { outcomeSchema, uploadDescription, uploadExamples } from './documentation.js';
import { simulateItems } from './dry-run.js';
import { type HeldAnswers, holdAnswers } from './held-answers.js';
import {
  conflictModes,
  createItemHandler,
  findResource,
  type ImportOptions,
  itemsInDatabase,
  type LineOutcome,
  parseItem,
  resourceNames,
} from './import-line.js';
import { type ImportLine, readLines } from './read-lines.js';
import { import_memory_bytes, runImport } from './run-import.js';
import { createStreamHandler, parseStreamLines, streamLine, withSimulation } from './stream-lines.js';

interface ImportDeps extends EndpointDeps {
  ingest: (submission: Submission) => Promise<boolean[]>;
  log: Log;
}

/** Memory of all imports of a process. */
const max_import_bytes = 64 * 1024 * 1024;

/** Imports of an account that wait for others. */
const max_waiting = 10;
/** Longer than an import that is too slow keeps its memory. */
const wait_limit_ms = 15_000;

const parameters = new Map<string, FieldType>([
  [
    'resource',
    withDocumentation(choice(...resourceNames), { about: 'Type of the lines that name none.', example: 'device' }),
  ],
  [
    'account',
    withDocumentation(textMatching(60, isAccountName, 'the name of an account'), {
      about: 'Identifiers and references of this account become those of the account of the key.',
      example: 'demo',
    }),
  ],
  [
    'on_conflict',
    withDocumentation(choice(...conflictModes), {
      about:
        'Treatment of objects that exist: `skip` (the default) answers 2007, `update` changes them, `fail` is 4003. Streams take `skip`, or `create` to be stored once more.',
      example: 'skip',
    }),
  ],
  ['dry_run', withDocumentation(choice('1'), { about: '1: answers the same and changes nothing.', example: '1' })],
]);

/** Creates the endpoint that imports resources (reference/import.md). */
export function importEndpoints({ yieldTurn, log, ingest }: ImportDeps): Endpoint[] {
  const imports = createShares({ capacity: max_import_bytes, max_waiting });
  const logFailure = createRateLimitedLog(log, 'error');
  return [
    {
      operationId: 'importResources',
      method: 'post',
      path: '/import/',
      tag: 'import',
      summary: 'Create or update many resources, or store streams',
      description: uploadDescription,
      scope: 'write',
      query: parameters,
      upload: uploadExamples,
      result: { kind: 'lines', schema: outcomeSchema },
      async handle(ctx) {
        const params = parseQuery(ctx.query, parameters);
        const release = await takeMemory(imports, ctx);
        const memory = imports.reserve(ctx.account);
        try {
          await serveImport(ctx, params, { memory, yieldTurn, logFailure, ingest });
        } finally {
          memory.release();
          release();
        }
      },
    },
  ];
}

/**
 * Takes the memory of an import. An account without any waits until other accounts give some back.
 * @throws AppError overloaded (5033)
 */
async function takeMemory(imports: Shares, ctx: RequestContext): Promise<Release> {
  const { account, response } = ctx;
  const { caller, signal: left } = callerOf(ctx);
  if (imports.heldBy(account) > 0) return imports.take(account, import_memory_bytes, caller);
  const acquire = (signal: AbortSignal) => imports.acquire(account, { amount: import_memory_bytes, caller, signal });
  try {
    return await localsOf(response).awaitBody(() => runWithTimeLimit(wait_limit_ms, left, acquire));
  } catch (error) {
    throw error instanceof TimeLimitError ? new AppError('overloaded') : error;
  }
}

async function serveImport(
  ctx: RequestContext,
  params: Values,
  deps: Pick<ImportDeps, 'yieldTurn' | 'ingest'> & { logFailure: LogLine; memory: Reservation },
): Promise<void> {
  const { request, response } = ctx;
  const { memory, yieldTurn, logFailure, ingest } = deps;
  const options = optionsOf(params);
  const locks = createKeyedMutex();
  const simulation = params.dry_run === undefined ? undefined : simulateItems(memory.add);
  const handleItem = simulation ? createItemHandler(options, simulation) : createItemHandler(options, itemsInDatabase);
  const storeStreams = createStreamHandler(options, ingest, simulation !== undefined);
  const handleStreams = simulation ? withSimulation(storeStreams, simulation, memory.add) : storeStreams;
  const isStream = ({ content }: ImportLine) =>
    !(content instanceof AppError) && (content.resource ?? options.resource) === streamLine.name;

  async function applyItem({ line, bytes, content }: ImportLine): Promise<LineOutcome> {
    if (content instanceof AppError) return content;
    const item = parseItem(ctx.account, options, content);
    return locks(item.keys, async () => {
      if (bytes > yield_threshold_bytes) await yieldTurn(ctx);
      return withSentNames(item.resource, item.body, () => handleItem(ctx, item, line));
    });
  }

  async function apply(lines: readonly [ImportLine, ...ImportLine[]]): Promise<readonly LineOutcome[]> {
    const [first] = lines;
    try {
      if (!isStream(first)) return [await applyItem(first)];
      const contents = lines.map(({ content }) => content as Values);
      const { items, keys } = parseStreamLines(ctx.account, options, contents);
      return await locks(keys, () => handleStreams(ctx, items));
    } catch (error) {
      const failed = toAppError(error);
      const { status, code, message } = failures[failed.failure];
      const { line } = first;
      if (status === 503) logFailure(message, { request_id: ctx.request_id, code, line, err: failed.cause ?? failed });
      return lines.map(() => failed);
    }
  }

  localsOf(response).isUnlimitedUpload = true;
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
  const answers = holdAnswers(response, memory);
  const watch = beginInTime(request, answers);
  const resourceOf = (named: unknown) => {
    const name = named === undefined || named === '' ? options.resource : named;
    return name === streamLine.name ? streamLine : findResource(name);
  };
  await runImport(readLines(request, resourceOf), apply, { answers, isStream }).finally(() => clearInterval(watch));
  // a client that has not sent all may never do so
  if (!request.complete) response.once('finish', () => request.destroy());
}

/** A client that has sent nothing for so long waits for the answers to what it has sent. */
const pause_ms = 1000;

/**
 * Begins the answer at once, or at a pause of the body if its length is known, as the client may send all of it before it reads.
 * The answer to a proxy begins after the body. @returns a timer to clear
 */
function beginInTime({ headers, socket }: RequestContext['request'], answers: HeldAnswers): NodeJS.Timeout | undefined {
  if (headers['x-forwarded-for'] !== undefined) return undefined;
  if (headers['content-length'] === undefined) {
    answers.begin();
    return undefined;
  }
  let bytes_before = socket.bytesRead;
  return setInterval(() => {
    if (socket.bytesRead === bytes_before) answers.begin();
    bytes_before = socket.bytesRead;
  }, pause_ms);
}

/** A larger line is checked in a turn of the event loop of its own. */
const yield_threshold_bytes = 64 * 1024;

function optionsOf({ resource, account, on_conflict }: Values): ImportOptions {
  return {
    resource: typeof resource === 'string' ? resource : undefined,
    from_account: typeof account === 'string' ? account : undefined,
    on_conflict: conflictModes.find((mode) => mode === on_conflict) ?? 'skip',
  };
}
