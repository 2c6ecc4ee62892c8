import { spawnSync } from 'node:child_process';
import { it } from '@jest/globals';

const isInstalled = spawnSync('mosquitto_pub', ['--help']).error === undefined;
if (!isInstalled) process.stderr.write('skipped: mosquitto_pub is not installed\n');

/** A test with the clients of Mosquitto, which is skipped where they are not installed. */
export const itWithMosquitto = isInstalled ? it : it.skip;
