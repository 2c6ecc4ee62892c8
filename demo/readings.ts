import { hash } from 'node:crypto';
import type { Station } from './fleet.js';

/** The body of a stream (reference/streams.md#fields). */
export interface Reading {
  _t: 'str' | 'sta';
  at: number;
  data: object;
}

const day_s = 86_400;
const year_s = 365.2425 * day_s;
/** Data streams every half hour, status streams every four hours. */
const [data_period_s, status_period_s] = [1800, 14_400];
/** Seconds from the start of a UTC year until the northern summer is warmest. */
const warmest_s = 205 * day_s;
/** One station in so many sends no data streams, another one no status streams. */
const late_share = 20;

/**
 * Creates the readings of a station for the 24 hours before `now` (epoch seconds), oldest first. They depend on the place
 * and the time alone. A few stations lack data or status streams, so that not all of them have the status `ok`.
 */
export function createReadings(station: Station, now: number): Reading[] {
  const seed = hash('sha1', JSON.stringify([station.name, station.lon, station.lat]), 'buffer');
  const part = seed.readUInt8(0) % late_share;
  const series = (_t: Reading['_t'], period_s: number, measure: (at: number) => object) => {
    const last = now - (now % period_s);
    const count = day_s / period_s;
    return Array.from({ length: count }, (_, index): Reading => {
      const at = last - (count - 1 - index) * period_s;
      return { _t, at, data: measure(at) };
    });
  };
  return [
    ...(part === 0 ? [] : series('str', data_period_s, (at) => measureWeather(station, seed, at))),
    ...(part === 1 ? [] : series('sta', status_period_s, (at) => measureStation(station, seed, at))),
  ];
}

function measureWeather(station: Station, seed: Buffer, at: number): object {
  const { lat } = station;
  const sun = sunAt(station, at - 2 * 3600);
  const season = Math.cos(((at - warmest_s) / year_s) * 2 * Math.PI) * (lat < 0 ? -1 : 1);
  const mean_c = 27 - 0.004 * lat * lat + season * (Math.abs(lat) / 5);
  // clouds and altitude differ from place to place
  const range_c = 3 + (seed.readUInt8(1) % 6);
  const temperature_c = mean_c - (seed.readUInt8(2) % 8) + range_c * sun + 0.6 * noiseAt(seed, at, 1);
  const wind_m_s = Math.max(0, 2 + (seed.readUInt8(3) % 5) + 1.5 * sun + 2 * noiseAt(seed, at, 2));
  return {
    temperature_c: round(temperature_c),
    humidity_percent: round(Math.min(100, Math.max(8, 65 - 4 * range_c * sun + 4 * noiseAt(seed, at, 3)))),
    wind_m_s: round(wind_m_s),
    wind_from_deg: Math.floor((seed.readUInt8(4) * 1.4 + 30 * noiseAt(seed, at, 4) + 360) % 360),
  };
}

/** A battery charges while the sun is up. */
function measureStation(station: Station, seed: Buffer, at: number): object {
  const charge = sunAt(station, at - 3 * 3600);
  return {
    battery_v: round(12.5 + 0.5 * charge - (seed.readUInt8(5) % 10) / 20 + 0.05 * noiseAt(seed, at, 5)),
    signal_dbm: -60 - (seed.readUInt8(6) % 45) + Math.round(3 * noiseAt(seed, at, 6)),
  };
}

/** Returns -1 at midnight to 1 at noon, local mean time. */
function sunAt({ lon }: Station, at: number): number {
  return -Math.cos((((at / day_s + lon / 360) % 1) + 1) * 2 * Math.PI);
}

/** Returns -1 to 1: two waves whose periods and phases differ by place. */
function noiseAt(seed: Buffer, at: number, byte: number): number {
  const phase = seed.readUInt8(byte + 8);
  return 0.6 * Math.sin(at / (2900 + 31 * phase) + phase) + 0.4 * Math.sin(at / (1300 + 17 * phase) + 2 * phase);
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
