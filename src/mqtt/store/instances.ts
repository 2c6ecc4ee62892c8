import type { Database } from '../../db/database.js';
import { hasMatch, runPipeline } from '../../db/raw-find.js';

/** A process with a broker. */
interface StoredInstance {
  _id: string;
  /** Processes of one place see each other's process ids. */
  place: string;
  pid: number;
  /** Clock of the database. */
  seen_at: Date;
  /** Instances whose clients this one takes into account. */
  knows: readonly string[];
  /** Grows when the instance wants to know how far others have read. */
  ping: number;
  /** The latest ping of others that it has read, with all that was written before. */
  answers: Readonly<Record<string, number>>;
}

/** A process with a broker, as others see it. */
export interface SeenInstance extends Pick<StoredInstance, '_id' | 'place' | 'pid' | 'knows'> {
  /** Time since its last sign of life. */
  age_ms: number;
}

const instancesIn = (db: Database) => db.collection<StoredInstance>('mqtt_instances');

/** Registers a process. */
export async function joinBrokers(db: Database, instance: Pick<SeenInstance, '_id' | 'place' | 'pid'>): Promise<void> {
  const { _id, ...fields } = instance;
  const set = { ...fields, seen_at: '$$NOW', knows: { $literal: [] }, ping: 0, answers: { $literal: {} } };
  await instancesIn(db).updateOne({ _id }, [{ $set: set }], { upsert: true });
}

/** Gives a sign of life. @returns false if others have declared the instance dead */
export async function reportLife(db: Database, _id: string, knows: readonly string[]): Promise<boolean> {
  const alive = [{ $set: { seen_at: '$$NOW', knows: { $literal: knows } } }];
  return (await instancesIn(db).updateOne({ _id }, alive)).matchedCount === 1;
}

/** Finds all registered processes. */
export function findBrokers(db: Database): Promise<SeenInstance[]> {
  const age_ms = { $subtract: ['$$NOW', '$seen_at'] };
  const stages = [{ $project: { place: 1, pid: 1, knows: 1, age_ms: { $toDouble: age_ms } } }];
  return runPipeline<SeenInstance>(instancesIn(db), stages);
}

/** Reports whether a process is registered; a killed one is until others have taken over what it has left. */
export function isRegistered(db: Database, _id: string): Promise<boolean> {
  return hasMatch(instancesIn(db), { _id });
}

/** Asks the others to report how far they have read. */
export async function writePing(db: Database, _id: string, ping: number): Promise<void> {
  await instancesIn(db).updateOne({ _id }, { $set: { ping } });
}

/** Reports which pings this instance has read. */
export async function writeAnswers(db: Database, _id: string, answers: ReadonlyMap<string, number>): Promise<void> {
  await instancesIn(db).updateOne({ _id }, { $set: { answers: Object.fromEntries(answers) } });
}

/** Ends a registration. */
export async function removeBroker(db: Database, _id: string): Promise<void> {
  await instancesIn(db).deleteOne({ _id });
}
