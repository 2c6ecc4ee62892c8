import {
  type Change,
  type ChangeStream,
  openChangeStream,
  parseChange,
  type ResumeToken,
} from '../../db/change-stream.js';
import type { Database } from '../../db/database.js';
import { type ForwardedMessage, forwards } from './forwards.js';
import { splitKey } from './keys.js';
import { withBuffer } from './messages.js';
import type { RetainedMessage } from './retained.js';
import type { StoredSession } from './sessions.js';

/** A change of the state of an account's broker that any instance has made. */
export type AccountChange =
  | { kind: 'session'; account: string; client_id: string; state: StoredSession }
  | { kind: 'released'; account: string; client_id: string; fields: Partial<StoredSession> }
  | { kind: 'deleted'; account: string; client_id: string }
  | { kind: 'retained'; account: string; message: RetainedMessage }
  | { kind: 'forwarded'; account: string; message: ForwardedMessage };

/** A change that any instance has made. */
export type StateChange =
  | AccountChange
  | { kind: 'ping'; instance: string; ping: number }
  | { kind: 'answers'; instance: string; answers: Readonly<Record<string, number>> };

interface RawChange extends Change {
  ns: { coll: string };
  documentKey: { _id: unknown };
  fullDocument?: Record<string, unknown>;
  updateDescription?: { updatedFields: Record<string, unknown> };
}

const followed = ['mqtt_sessions', 'mqtt_retained', 'mqtt_instances', forwards];

/** Opens the changes of other instances and, but for forwarded messages, of this one, in their order. */
export function openStateChanges(db: Database, instance: string, resumeToken?: ResumeToken): Promise<ChangeStream> {
  const isFollowed = {
    'ns.coll': { $in: followed },
    operationType: { $in: ['insert', 'replace', 'update', 'delete'] },
    'fullDocument.from': { $ne: instance },
  };
  const kept = {
    operationType: 1,
    'ns.coll': 1,
    documentKey: 1,
    fullDocument: 1,
    'updateDescription.updatedFields': 1,
  };
  return openChangeStream(db, {
    pipeline: [{ $match: isFollowed }, { $project: kept }],
    ...(resumeToken && { resumeToken }),
  });
}

/** @returns undefined for a change that no other instance needs */
export function parseStateChange(bson: Uint8Array): StateChange | undefined {
  const change = parseChange(bson) as RawChange;
  const { coll } = change.ns;
  if (coll === 'mqtt_instances') return parseInstanceChange(change);
  if (coll === forwards) {
    const message = change.fullDocument as unknown as ForwardedMessage | undefined;
    return message && { kind: 'forwarded', account: message.account, message: withBuffer(message) };
  }
  const [account, name] = splitKey(String(change.documentKey._id));
  return coll === 'mqtt_retained' ? parseRetainedChange(change, account, name) : parseSession(change, account, name);
}

function parseInstanceChange({ documentKey, updateDescription }: RawChange): StateChange | undefined {
  const instance = String(documentKey._id);
  const { ping, answers } = updateDescription?.updatedFields ?? {};
  if (typeof ping === 'number') return { kind: 'ping', instance, ping };
  return answers === undefined ? undefined : { kind: 'answers', instance, answers: answers as Record<string, number> };
}

function parseRetainedChange({ fullDocument }: RawChange, account: string, topic: string): StateChange {
  const deleted: RetainedMessage = { topic, payload: Buffer.alloc(0), qos: 0 };
  const message = fullDocument === undefined ? deleted : withBuffer(fullDocument as unknown as RetainedMessage);
  return { kind: 'retained', account, message };
}

function parseSession(
  { operationType, fullDocument, updateDescription }: RawChange,
  account: string,
  client_id: string,
): StateChange {
  if (operationType === 'delete') return { kind: 'deleted', account, client_id };
  if (fullDocument === undefined) {
    const fields = withNumericVersion(updateDescription?.updatedFields ?? {}) as Partial<StoredSession>;
    return { kind: 'released', account, client_id, fields };
  }
  return { kind: 'session', account, client_id, state: withNumericVersion(fullDocument) as unknown as StoredSession };
}

function withNumericVersion(fields: Record<string, unknown>): Record<string, unknown> {
  return fields.version === undefined ? fields : { ...fields, version: Number(fields.version) };
}
