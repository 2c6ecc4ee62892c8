import { describe, expect, it } from '@jest/globals';
import { deviceTypes } from '../../src/resources/catalogues/device-types.js';
import { locales } from '../../src/resources/catalogues/locales.js';
import { sensorTypes } from '../../src/resources/catalogues/sensors.js';
import { isTimeZone, timeZones } from '../../src/resources/catalogues/time-zones.js';
import { wordsOf } from '../support/words.js';

describe.each([
  [
    'device types',
    deviceTypes,
    ['weather_station', 'gateway', 'smart_meter', 'thermostat', 'tracker', 'plc', 'camera'],
  ],
  ['sensors', sensorTypes, ['temperature', 'relative_humidity', 'co2', 'pm2_5', 'soil_moisture', 'door_contact']],
])('%s', (_, catalogue, expected) => {
  it('have a useful number of entries, including the common ones', () => {
    expect(catalogue.length).toBeGreaterThanOrEqual(80);
    expect(catalogue.length).toBeLessThanOrEqual(150);
    expect(catalogue).toEqual(expect.arrayContaining(expected));
  });

  it('are lower-case identifiers of at most 50 characters', () => {
    expect(catalogue.filter((entry) => !/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(entry) || entry.length > 50)).toEqual([]);
  });
});

it.each([
  ['device types', deviceTypes],
  ['sensors', sensorTypes],
  ['time zones', timeZones],
  ['locales', locales],
])('%s are unique and in binary order', (_, catalogue) => {
  expect(catalogue).toEqual([...new Set(catalogue)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))));
});

describe('locales', () => {
  it('are language and region, known to the runtime as such', () => {
    expect(locales.length).toBeGreaterThan(500);
    expect(locales.filter((locale) => !/^[a-z]{2,3}-(?:[A-Z]{2}|[0-9]{3})$/.test(locale))).toEqual([]);
    const resolved = (locale: string) => new Intl.NumberFormat(locale).resolvedOptions().locale;
    expect(locales.filter((locale) => resolved(locale) !== locale)).toEqual([]);
    expect(locales).toEqual(expect.arrayContaining(['de-AT', 'en-US', 'es-419', 'es-ES', 'pt-BR', 'zh-CN']));
  });
});

describe('time zones', () => {
  it('include those of the runtime, the default, UTC and links', () => {
    const links = wordsOf('Asia/Kolkata Asia/Calcutta Europe/Kyiv Europe/Kiev US/Pacific GB Etc/GMT+12 Zulu');
    expect(timeZones).toEqual(expect.arrayContaining(['Europe/Madrid', 'UTC', 'Etc/UTC', ...links]));
    expect(timeZones).toEqual(expect.arrayContaining(Intl.supportedValuesOf('timeZone')));
  });

  it('are all usable by the runtime', () => {
    const isUsable = (timeZone: string) => {
      try {
        return new Intl.DateTimeFormat('en', { timeZone }).resolvedOptions().timeZone !== '';
      } catch {
        return false;
      }
    };
    expect(timeZones.filter((zone) => !isUsable(zone))).toEqual([]);
  });

  it('are recognised only in their exact spelling', () => {
    expect(timeZones.filter((zone) => !isTimeZone(zone))).toEqual([]);
    const others = [
      '',
      'utc',
      'europe/madrid',
      ' UTC',
      'Europe/Madrid ',
      '+01:00',
      'Factory',
      'Mars/Olympus',
      '__proto__',
    ];
    expect(others.filter(isTimeZone)).toEqual([]);
  });
});
