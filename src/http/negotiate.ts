import type { ListFormat } from '../schema/list-parameters.js';

const max_header_length = 4096;
const QUALITY = /^(?:\d(?:\.\d{0,9})?|\.\d{1,9})$/;

/** Reports whether `Accept` names XML and prefers it to JSON (reference/requests.md#formats). */
export function isXmlPreferred(accept: string | undefined): boolean {
  if (accept === undefined || accept === '*/*' || accept === 'application/json') return false;
  if (accept === 'application/xml') return true;
  const { xml, json } = preference(accept);
  return xml > json;
}

/** Returns the format of a list that `Accept` prefers; in a tie the first of JSON, XML, CSV, NDJSON (reference/exports.md#formats). */
export function chooseListFormat(accept: string | undefined): ListFormat {
  if (accept === undefined || accept === '*/*' || accept === 'application/json') return 'json';
  const qualities = preference(accept);
  return listFormats.reduce((best, format) => (qualities[format] > qualities[best] ? format : best));
}

const listFormats: readonly ListFormat[] = ['json', 'xml', 'csv', 'ndjson'];

/** Reports whether `Accept` names HTML, and no range with a higher quality: as browsers do for a page. */
export function isHtmlPreferred(accept = ''): boolean {
  let html = 0;
  let others = 0;
  for (const [type, quality] of readRanges(accept)) {
    if (type === 'text/html') html = Math.max(html, quality);
    else others = Math.max(others, quality);
  }
  return html > 0 && html >= others;
}

/** Returns the format that `Accept` names, wildcards aside; JSON in a tie (reference/device-configs.md#download). */
export function parseExplicitFormat(accept: string | undefined): 'json' | 'xml' | undefined {
  if (accept === undefined || accept === '*/*') return undefined;
  const { xml, json, json_named } = preference(accept);
  const named = json_named ? json : 0;
  if (xml > named) return 'xml';
  return named > 0 ? 'json' : undefined;
}

/** Reads the quality of each format, from 0 to 1. `json_named`: JSON was named, not only covered by a wildcard. */
function preference(accept: string) {
  const qualities = { xml: 0, json: 0, csv: 0, ndjson: 0 };
  let rank = 0;
  for (const [type, quality] of readRanges(accept)) {
    const format = namesXml(type) ? 'xml' : rowTypes.get(type);
    if (format !== undefined) qualities[format] = Math.max(qualities[format], quality);
    const specific = jsonRank(type);
    if (specific < rank || (specific === rank && quality <= qualities.json)) continue;
    rank = specific;
    qualities.json = specific === 0 ? 0 : quality;
  }
  return { ...qualities, json_named: rank >= 3 };
}

const rowTypes = new Map([
  ['text/csv', 'csv'],
  ['application/x-ndjson', 'ndjson'],
] as const) as ReadonlyMap<string, 'csv' | 'ndjson'>;

/** Yields the media ranges of `Accept` with their quality (RFC 9110 §12.5.1), without malformed ones. */
function* readRanges(accept: string): Generator<[type: string, quality: number]> {
  for (const range of split(accept.slice(0, max_header_length), ',')) {
    const [type = '', ...parameters] = split(range, ';').map((part) => part.trim().toLowerCase());
    const quality = qualityOf(parameters);
    if (quality !== undefined) yield [type, quality];
  }
}

/** Reports whether `Content-Type` labels a body as XML (reference/streams.md#xml-bodies). */
export function isXmlContent(contentType: string | undefined): boolean {
  if (contentType === undefined) return false;
  const [type = ''] = contentType.slice(0, max_header_length).split(';');
  return namesXml(type.trim().toLowerCase());
}

function namesXml(type: string): boolean {
  return type === 'application/xml' || type === 'text/xml' || /^[^/]+\/[^/]+\+xml$/.test(type);
}

/** Specificity of a media range for JSON; the most specific range decides. */
function jsonRank(type: string): number {
  if (type === 'application/json') return 4;
  if (/^[^/]+\/[^/]+\+json$/.test(type)) return 3;
  if (type === 'application/*') return 2;
  return type === '*/*' ? 1 : 0;
}

/** Parses `q`, by default 1. @returns undefined if it is malformed */
function qualityOf(parameters: string[]): number | undefined {
  const quality = parameters.find((parameter) => /^q\s*=/.test(parameter));
  if (quality === undefined) return 1;
  const text = quality.slice(quality.indexOf('=') + 1).trim();
  return QUALITY.test(text) && Number(text) <= 1 ? Number(text) : undefined;
}

/** Splits at separators outside quoted strings, in one pass. */
function split(text: string, separator: string): string[] {
  const parts: string[] = [];
  let start = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const character = text[i];
    if (quoted && character === '\\') i++;
    else if (character === '"') quoted = !quoted;
    else if (!quoted && character === separator) {
      parts.push(text.slice(start, i));
      start = i + 1;
    }
  }
  parts.push(text.slice(start));
  return parts;
}
