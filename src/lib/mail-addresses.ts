const atoms = "[A-Za-z0-9!#$&'*+=^_`{|}~-]+";
const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const pattern = new RegExp(`^${atoms}(?:\\.${atoms})*@${label}(?:\\.${label})*$`);
const max_address_length = 254;

/** Reports whether a text is one mail address, without name, quotes and comments. */
export function isMailAddress(text: string): boolean {
  return text.length <= max_address_length && pattern.test(text);
}

/** Splits `mailto:a@example.com,b@example.com`. @returns undefined for any other address, and for more than `max` */
export function parseMailto(url: string, max: number): string[] | undefined {
  if (!isMailto(url)) return undefined;
  const addresses = url.slice('mailto:'.length).split(',');
  return addresses.length <= max && addresses.every(isMailAddress) ? addresses : undefined;
}

/** Reports whether an address is one of mail, whatever follows the scheme. */
export function isMailto(url: string): boolean {
  return /^mailto:/i.test(url);
}
