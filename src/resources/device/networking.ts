import { isIPv4, isIPv6 } from 'node:net';
import type { FieldErrors } from '../../errors.js';
import { object } from '../../schema/fields/object.js';
import { choice, exactText, text, textMatching } from '../../schema/fields/text.js';
import { optional, required, type Values, withDocumentation } from '../../schema/fields.js';
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

const sim_card = optional(exactText(18), {
  about: 'Number of the SIM card, exactly 18 characters. Only for gprs.',
  example: '893407110012345678',
});
const telephone_number = optional(text(15), { about: 'Telephone number. Only for gprs.', example: '+34600123456' });
const carrier = optional(text(50), { about: 'Mobile network operator. Only for gprs.', example: 'Isobar' });
const addressDocs = { about: 'Network address. Only for ethernet, wifi and zigbee.', example: '192.0.2.7' };

/** The type of the field `networking`. */
export const networking = object(
  {
    type: required(networkType, {
      about: 'Kind of network; decides which other fields it may have.',
      example: 'ethernet',
    }),
    conn_address: optional(textMatching(50, isNetworkAddress, 'an IPv4, IPv6 or MAC address'), addressDocs),
    sim_card,
    telephone_number,
    carrier,
  },
  checkKeys,
  { title: 'Networking' },
);

function checkKeys(networking: Values, path: string, faults: FieldErrors): void {
  if (faults[`${path}.type`] !== undefined) return;
  for (const [key, types] of Object.entries(typesOfKey)) {
    const { type, [key]: value } = networking;
    if (value === undefined || value === null || types.includes(String(type))) continue;
    faults[`${path}.${key}`] ??= `is only for ${types.join(', ')}`;
  }
}

/** List filters by the members of `networking`. */
export const networkingFilters: readonly Filter[] = [
  defineFilter('conn_address', 'networking.conn_address', withDocumentation(text(50), addressDocs)),
  defineFilter(
    'conn_type',
    'networking.type',
    withDocumentation(networkType, { about: 'Kind of network.', example: 'ethernet' }),
  ),
  defineFilter('sim_card', 'networking.sim_card', sim_card.type),
  defineFilter('telephone_number', 'networking.telephone_number', telephone_number.type),
  defineFilter('carrier', 'networking.carrier', carrier.type),
];
