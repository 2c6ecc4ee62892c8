import { runPipeline } from '../../db/raw-find.js';
import { max_latest_leaves } from '../../resources/device/latest.js';
import type { Measure } from '../../resources/measure.js';
import { model } from '../../resources/model.js';
import { type DataPath, spellingsOf } from '../../schema/data-path.js';
import type { MemberRequest } from '../../schema/requested.js';
import { bsonType, getId, getString } from '../../serialize/bson.js';
import { findAtPath, LeafCopier } from '../../serialize/leaves.js';
import { buildDocument } from '../../serialize/selection.js';
import type { OperationContext } from '../context.js';
import type { Bson, RequestedMember } from '../page.js';
import { findLastStreams, type LastStream } from './stream-values.js';

/** Different measures with the requested paths; beyond it some columns may be headed by their paths. */
const max_measures = 1000;

/** `latest` of devices: their last data stream (reference/devices.md#latest-values). */
export const latestValues: RequestedMember = { load, nameColumns };

async function load(
  ctx: OperationContext,
  documents: readonly Bson[],
  request: MemberRequest & { isFlat: boolean },
): Promise<ReadonlyMap<Bson, Bson>> {
  const copier = new LeafCopier(max_latest_leaves, request.isWhole ? undefined : request.paths);
  const streams = await loadLastStreams(ctx, documents);
  return new Map([...streams].map(([bson, last]) => [bson, buildLatest(last, copier, request)]));
}

/** Takes last streams from the cache, and looks up the others. */
async function loadLastStreams(
  { store, account, now, moment = now }: OperationContext,
  documents: readonly Bson[],
): Promise<ReadonlyMap<Bson, LastStream>> {
  const streams = new Map<Bson, LastStream>();
  const missing = new Map<string, Bson>();
  for (const bson of documents) {
    const cached = store.lastStreams.get(bson, moment);
    if (cached === undefined) missing.set(getString(bson, 'id_developer') ?? '', bson);
    else streams.set(bson, cached);
  }
  const devices = [...missing].map(([id_developer, bson]) => ({ _id: getId(bson, '_id'), account, id_developer }));
  const found = await findLastStreams(store.db, devices, moment);
  for (const [id_developer, bson] of missing) {
    const last = found.get(id_developer);
    if (last === undefined) continue;
    streams.set(bson, last);
    if (last.isLast) store.lastStreams.set(bson, last, now);
  }
  return streams;
}

function buildLatest(
  { at, data }: LastStream,
  copier: LeafCopier,
  { isWhole, isFlat, paths }: MemberRequest & { isFlat: boolean },
): Bson {
  const shown = copier.copy(data);
  const members = [buildNumber('at', at)];
  if (isWhole || !isFlat) members.push(buildMember('data', bsonType.document, shown));
  if (isFlat)
    for (const path of paths) {
      const element = findAtPath(shown, path);
      if (element !== undefined) members.push(buildMember(path.text, element.type, element.value));
    }
  return buildDocument(members);
}

function buildMember(key: string, type: number, value: Buffer): Buffer {
  return Buffer.concat([Buffer.from([type]), Buffer.from(`${key}\0`), value]);
}

function buildNumber(key: string, value: number): Buffer {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeDoubleLE(value);
  return buildMember(key, bsonType.double, bytes);
}

/** Names measures as `Pressure (bar)`, unless models of the account name them differently (reference/exports.md#csv). */
async function nameColumns(
  { store, account }: OperationContext,
  paths: readonly DataPath[],
): Promise<ReadonlyMap<string, string>> {
  const byText = new Map(paths.flatMap((path) => spellingsOf(path).map((text) => [text, path] as const)));
  const spellings = [...byText.keys()];
  const pipeline = [
    { $match: { account, 'measures.path': { $in: spellings } } },
    { $unwind: '$measures' },
    { $match: { 'measures.path': { $in: spellings } } },
    { $group: { _id: { path: '$measures.path', name: '$measures.name', unit: '$measures.unit' } } },
    { $limit: max_measures },
  ];
  type Row = { _id: Pick<Measure, 'path' | 'name' | 'unit'> };
  const measures = await runPipeline<Row>(store.db.collection(model.plural), pipeline);
  const names = new Map<string, Set<string>>();
  for (const { _id: measure } of measures) {
    const requested = byText.get(measure.path);
    if (requested === undefined) continue;
    names.set(requested.text, (names.get(requested.text) ?? new Set()).add(nameMeasure(measure, requested)));
  }
  return new Map([...names].flatMap(([text, [name = '', ...others]]) => (others.length > 0 ? [] : [[text, name]])));
}

function nameMeasure({ name, unit }: Pick<Measure, 'name' | 'unit'>, { text }: DataPath): string {
  const label = name ?? `latest.${text}`;
  return unit === undefined ? label : `${label} (${unit})`;
}
