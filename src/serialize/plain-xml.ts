import { create } from 'xmlbuilder2';
import { isXmlName } from '../schema/xml-names.js';

type Builder = ReturnType<typeof create>;

const REPLACEMENT = '\uFFFD';

/**
 * A plain value, as JSON.parse gives it, as an XML document with the root element `root` (contract 4).
 * Array items are named `item`, those of the array `result` at the top after `member` if it is given.
 * Byte for byte what `store/printer` makes of the same value.
 */
export function toXml(root: string, value: unknown, member?: string): string {
  const document = create({ version: '1.0', encoding: 'UTF-8', invalidCharReplacement: REPLACEMENT });
  fill(document.ele(root), value, member);
  return document.end();
}

function fill(node: Builder, value: unknown, member?: string): void {
  if (value === null || value === undefined || (typeof value === 'number' && !Number.isFinite(value))) {
    node.att('nil', 'true');
  } else if (Array.isArray(value)) {
    for (const item of value) fill(node.ele('item'), item);
  } else if (typeof value === 'object') {
    for (const [key, inner] of Object.entries(value)) {
      if (inner === undefined) continue;
      const child = isXmlName(key) ? node.ele(key) : node.ele('entry').att('key', escapeAttribute(key));
      if (member !== undefined && key === 'result' && Array.isArray(inner)) {
        for (const item of inner) fill(child.ele(member), item);
      } else {
        fill(child, inner);
      }
    }
  } else if (value !== '') {
    node.txt(escapeText(String(value)));
  }
}

/**
 * The builder escapes < > and ", but takes what looks like an entity in the text for one and leaves a carriage return
 * to be normalised away. References are decimal because the builder escapes hexadecimal ones.
 */
function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('\r', '&#13;');
}

function escapeAttribute(text: string): string {
  return escapeText(text).replaceAll('\t', '&#9;').replaceAll('\n', '&#10;');
}
