import { create } from 'xmlbuilder2';
import { isXmlName } from '../schema/xml-names.js';

type Builder = ReturnType<typeof create>;

const replacement = '\uFFFD';

/**
 * Builds the XML document of a small plain value, as JSON.parse returns it (reference/requests.md#xml).
 * Byte for byte what `XmlWriter` writes for the same value.
 */
export function toXml(root: string, value: unknown): string {
  const document = create({ version: '1.0', encoding: 'UTF-8', invalidCharReplacement: replacement });
  fill(document.ele(root), value);
  return document.end();
}

function fill(node: Builder, value: unknown): void {
  if (value === null || value === undefined || (typeof value === 'number' && !Number.isFinite(value))) {
    node.att('nil', 'true');
  } else if (Array.isArray(value)) {
    for (const item of value) fill(node.ele('item'), item);
  } else if (typeof value === 'object') {
    for (const [key, inner] of Object.entries(value)) {
      if (inner === undefined) continue;
      fill(isXmlName(key) ? node.ele(key) : node.ele('entry').att('key', escapeAttribute(key)), inner);
    }
  } else if (value !== '') {
    node.txt(escapeText(String(value)));
  }
}

/**
 * The builder escapes < > and ", but keeps whatever looks like an entity, and a bare carriage return, which a parser
 * would normalise. References are decimal because the builder escapes hexadecimal ones.
 */
function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('\r', '&#13;');
}

function escapeAttribute(text: string): string {
  return escapeText(text).replaceAll('\t', '&#9;').replaceAll('\n', '&#10;');
}
