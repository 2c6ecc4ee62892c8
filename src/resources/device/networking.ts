import { isIPv4, isIPv6 } from 'node:net';
import type { FieldErrors } from '../../errors.js';
import { object } from '../../schema/fields/object.js';
import { choice, exactText, text, textMatching } from '../../schema/fields/text.js';
import { optional, required, type Schema, type Values } from '../../schema/fields.js';
import { defineFilter, type Filter } from '../../schema/filters.js';

const networkTypes = ['ethernet', 'gprs', 'wifi', 'zigbee'] as const;
const networkType = choice(...networkTypes);

/** Network types that a key applies to (reference/devices.md#networking). */
const typesOfKey: Readonly<Record<string, readonly string[]>> = {
  conn_address: ['ethernet', 'wifi', 'zigbee'],
  sim_card: ['gprs'],
  telephone_number: ['gprs'],
  carrier: ['gprs'],
};

const hex = '[0-9A-Fa-f]';
const macAddresses = [
  `${hex}{12}(?:${hex}{4})?`,
  `${hex}{4}(?:\\.${hex}{4}){2,3}`,
  ...[':', '-'].map((mark) => `${hex}{2}(?:${mark}${hex}{2}){5}(?:(?:${mark}${hex}{2}){2})?`),
].map((pattern) => `^(?:${pattern})$`);
const macAddress = new RegExp(macAddresses.join('|'));

/** IPv4, IPv6, EUI-48 or EUI-64 in the usual spellings. */
function isNetworkAddress(text: string): boolean {
  return isIPv4(text) || isIPv6(text) || macAddress.test(text);
}

/** The type of the field `networking`. */
export const networking = object(
  {
    type: required(networkType),
    conn_address: optional(
      textMatching(50, isNetworkAddress, 'an IPv4, IPv6 or MAC address', {
        anyOf: [{ format: 'ipv4' }, { format: 'ipv6' }, ...macAddresses.map((pattern) => ({ pattern }))],
      }),
    ),
    sim_card: optional(exactText(18)),
    telephone_number: optional(text(15)),
    carrier: optional(text(50)),
  },
  checkKeys,
  { anyOf: networkTypes.map(schemaFor), examples: [{ type: 'ethernet', conn_address: '192.0.2.7' }] },
);

function checkKeys(given: Values, path: string, faults: FieldErrors): void {
  for (const [key, types] of Object.entries(typesOfKey)) {
    const { type, [key]: value } = given;
    if (value === undefined || value === null || typeof type !== 'string' || types.includes(type)) continue;
    faults[`${path}.${key}`] ??= `is only for ${types.join(', ')}`;
  }
}

function schemaFor(type: string): Schema {
  const otherKeys = Object.keys(typesOfKey).filter((key) => typesOfKey[key]?.includes(type) === false);
  const properties = { type: { const: type }, ...Object.fromEntries(otherKeys.map((key) => [key, { type: 'null' }])) };
  return { properties };
}

/** List filters by the members of `networking`. */
export const networkingFilters: readonly Filter[] = [
  defineFilter('conn_address', 'networking.conn_address', text(50)),
  defineFilter('conn_type', 'networking.type', networkType),
  defineFilter('sim_card', 'networking.sim_card', exactText(18)),
  defineFilter('telephone_number', 'networking.telephone_number', text(15)),
  defineFilter('carrier', 'networking.carrier', text(50)),
];
