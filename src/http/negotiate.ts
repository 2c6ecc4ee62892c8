const max_header_length = 4096;
const QUALITY = /^(?:\d(?:\.\d{0,9})?|\.\d{1,9})$/;

/** How much a client wants each format, 0..1; `json_named` tells whether JSON was named or only covered by a wildcard. */
interface Preference {
  xml: number;
  json: number;
  json_named: boolean;
}

/** Whether an answer goes out as XML: only if `Accept` names XML and wants it more than JSON (contract 4). */
export function wantsXml(accept: string | undefined): boolean {
  if (accept === undefined || accept === '*/*' || accept === 'application/json') return false;
  if (accept === 'application/xml') return true;
  const { xml, json } = preference(accept);
  return xml > json;
}

/** The format that `Accept` names, wildcards aside; the preferred one, and JSON in a tie, if it names both (contract 7). */
export function explicitFormat(accept: string | undefined): 'json' | 'xml' | undefined {
  if (accept === undefined || accept === '*/*') return undefined;
  const { xml, json, json_named } = preference(accept);
  const named = json_named ? json : 0;
  if (xml > named) return 'xml';
  return named > 0 ? 'json' : undefined;
}

/** Reads the media ranges that matter (RFC 9110 §12.5.1); what cannot be parsed is skipped. */
function preference(accept: string): Preference {
  let xml = 0;
  let json = 0;
  let rank = 0;
  for (const range of split(accept.slice(0, max_header_length), ',')) {
    const [type = '', ...parameters] = split(range, ';').map((part) => part.trim().toLowerCase());
    const quality = qualityOf(parameters);
    if (quality === undefined) continue;
    if (namesXml(type)) xml = Math.max(xml, quality);
    const specific = jsonRank(type);
    if (specific > rank || (specific === rank && quality > json)) {
      rank = specific;
      json = specific === 0 ? 0 : quality;
    }
  }
  return { xml, json, json_named: rank >= 3 };
}

function namesXml(type: string): boolean {
  return type === 'application/xml' || type === 'text/xml' || /^[^/]+\/[^/]+\+xml$/.test(type);
}

/** How closely a media range describes JSON; the closest one decides. */
function jsonRank(type: string): number {
  if (type === 'application/json') return 4;
  if (/^[^/]+\/[^/]+\+json$/.test(type)) return 3;
  if (type === 'application/*') return 2;
  return type === '*/*' ? 1 : 0;
}

/** 1 unless `q` says otherwise; undefined where it says nothing sensible. */
function qualityOf(parameters: string[]): number | undefined {
  const given = parameters.find((parameter) => /^q\s*=/.test(parameter));
  if (given === undefined) return 1;
  const text = given.slice(given.indexOf('=') + 1).trim();
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
