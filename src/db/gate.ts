import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { AppError, StartError } from '../errors.js';
import { data_version, version } from '../lib/version.js';
import { collections } from '../resources/index.js';
import { beginUpgrade, endUpgrade, isCurrent, isNewDatabase, readDataVersion, reportUpgrade } from './data-version.js';
import type { DatabaseAccess, Log } from './database.js';
import { lockOutFormerVersions, storedNameOf } from './former-versions.js';
import { startLeasedJob, type Turn } from './leased-job.js';

/** Dependencies of an upgrade beside the database. */
export interface UpgradeContext {
  log: Log;
  /** Aborts when another instance takes over, or this one stops. */
  signal: AbortSignal;
  /** Shows clients and other instances how far it is. */
  report(progress: string): Promise<void>;
}

/** Upgrades data of earlier versions; idempotent, as it may be interrupted at any point. */
export type DataUpgrade = (db: DatabaseAccess, context: UpgradeContext) => Promise<void>;

interface Options {
  log: Log;
  db(): mongo.Db;
  /** The database for migrations, for which the gate is open. */
  access: DatabaseAccess;
  createIndexes(): Promise<void>;
  /** Absent in tools, which do not upgrade. */
  upgrade: DataUpgrade | undefined;
  /** No other process has had the database since `mongod` was started. */
  isExclusive: boolean;
  stopped: AbortSignal;
}

/** Without a successful look at the version for so long an instance writes nothing. */
const confirmation_ms = 15_000;
/** By then, earlier versions have seen the upgrade or lost their confirmation, and what they had begun has ended. */
const grace_ms = confirmation_ms + 5000;
const grace_step_ms = 5000;
/** Progress during that time. */
const waiting = 'earlier versions end';
const poll_ms = 1000;
const lease_ms = 10_000;

const notUpgraded =
  'the data is of an earlier version: start the service, which upgrades it, and wait until it is ready';

/** Creates the gate of a process, closed at first, which keeps it from data that is not upgraded, or that another version writes. */
export function createGate({ log, db, access, createIndexes, upgrade, isExclusive, stopped }: Options) {
  let confirmed_until = 0;
  let progress: string | undefined;

  async function report(text: string): Promise<void> {
    progress = text;
    await reportUpgrade(db(), text);
  }

  /** Waits until no instance of an earlier version writes, as far as that can be seen; once, if the upgrade is interrupted. */
  async function waitForEarlierVersions({ pause, signal }: Turn): Promise<void> {
    const reached = (await readDataVersion(db()))?.upgrade ?? '';
    let isQuiet = reached !== '' && !reached.startsWith(waiting);
    for (let waited_ms = 0, before = -1; !isQuiet; waited_ms += grace_step_ms) {
      const count = await countDocuments(db());
      // an import that an earlier version has begun adds documents until it ends
      isQuiet = waited_ms >= grace_ms && count === before;
      before = count;
      await report(`${waiting}: ${Math.min(99, Math.floor((100 * waited_ms) / grace_ms))} %`);
      if (!isQuiet) await pause(grace_step_ms);
      signal.throwIfAborted();
    }
  }

  async function carryOut(turn: Turn, run: DataUpgrade): Promise<void> {
    const isNew = await isNewDatabase(db());
    await beginUpgrade(db());
    if (await lockOutFormerVersions(db()))
      log.warn({}, 'versions before 0.3.0 can no longer use this database; going back means the backup');
    if (!isNew && !isExclusive) await waitForEarlierVersions(turn);
    await report('indexes');
    await createIndexes();
    await run(access, { log, signal: turn.signal, report });
    turn.signal.throwIfAborted();
    await endUpgrade(db());
    if (!isNew) log.info({ data_version }, `data upgraded to version ${version}`);
  }

  /** Upgrades the data, or waits for the instance that does. */
  async function upgradeInTurn(run: DataUpgrade): Promise<void> {
    const ended = new AbortController();
    const job = startLeasedJob({
      ...{ db: access, log, name: 'upgrade', lease_ms },
      async work(turn) {
        if (!isCurrent(await readDataVersion(db()))) await carryOut(turn, run);
        ended.abort();
      },
    });
    const signal = AbortSignal.any([ended.signal, stopped]);
    try {
      for (let stored = await readDataVersion(db()); !isCurrent(stored); stored = await readDataVersion(db())) {
        stopped.throwIfAborted();
        progress = stored?.upgrade || progress;
        await sleep(poll_ms, undefined, { signal }).catch(() => undefined);
      }
    } finally {
      await job.stop();
    }
  }

  /** Looks at the version of the data again. @returns whether the gate is open @throws StartError for data of a later version */
  async function confirm(): Promise<boolean> {
    const sent_at = performance.now();
    const isUsable = isCurrent(await readDataVersion(db())) || (upgrade === undefined && (await isNewDatabase(db())));
    confirmed_until = isUsable ? sent_at + confirmation_ms : 0;
    if (isUsable) progress = undefined;
    return isUsable;
  }

  const isOpen = () => performance.now() < confirmed_until;
  const refuse = () => {
    throw new AppError('database', progress === undefined ? {} : { upgrade: progress });
  };
  return {
    isOpen,
    /** @throws AppError database (5031), with the progress of an upgrade */
    assertOpen() {
      if (!isOpen()) refuse();
    },
    /** @throws the same while the data is being upgraded */
    assertUpgraded() {
      if (!isOpen() && progress !== undefined) refuse();
    },
    confirm,
    /** Upgrades the data if necessary, on one instance at a time, and opens. @throws StartError for data of a later version */
    async open() {
      // a restored database has no views
      if (isCurrent(await readDataVersion(db()))) await lockOutFormerVersions(db());
      else if (upgrade !== undefined) await upgradeInTurn(upgrade);
      if (!(await confirm())) throw new StartError(notUpgraded);
    },
    /** @param reason for clients */
    close(reason: string) {
      confirmed_until = 0;
      progress = reason;
    },
  };
}

/** Counts what earlier versions add to, nearly. */
async function countDocuments(db: mongo.Db): Promise<number> {
  let total = 0;
  for (const { plural } of collections) total += await db.collection(storedNameOf(plural)).estimatedDocumentCount();
  return total;
}
