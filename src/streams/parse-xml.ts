import { isUtf8 } from 'node:buffer';
import { SaxesParser } from 'saxes';
import type { Values } from '../schema/fields.js';
import { max_body_values, max_depth, type ParsedJson } from '../schema/json.js';

const max_attributes = 100;
/** Parsed per turn of the event loop: a body of 1 MiB takes up to 0.2 s. */
const slice_length = 32 * 1024;

/** An element that is not closed yet. */
interface OpenElement {
  name: string;
  /** Key in the object above: the name, or the attribute `key` of an `entry`. */
  key: string;
  isNull: boolean;
  text: string;
  children: Child[];
}

interface Child {
  key: string;
  isItem: boolean;
  value: unknown;
}

/** Ends the parser; `fault` as in `ParsedJson`. */
class XmlFault extends Error {
  constructor(readonly fault: 'malformed' | 'tooManyValues') {
    super(fault);
  }
}

/**
 * Parses a body of streams in XML (reference/streams.md#xml-bodies) to the values that it has in JSON, with the same
 * limits of depth and number. Malformed is also another root, a document type, and an entity that it would have to declare.
 * @param yieldTurn lets others run between pieces
 */
export async function parseXmlStreams(body: Buffer, yieldTurn: () => Promise<void>): Promise<ParsedJson> {
  if (!isUtf8(body)) return { fault: 'malformed', isObject: false };
  try {
    return { value: await readDocument(body.toString(), yieldTurn) };
  } catch (error) {
    if (error instanceof XmlFault) return { fault: error.fault, isObject: false };
    throw error;
  }
}

async function readDocument(text: string, yieldTurn: () => Promise<void>): Promise<unknown> {
  // not `xmlns`: it resolves each name through all open elements, and prefixes have no meaning here
  const parser = new SaxesParser({ xmlns: false, position: false });
  const open: OpenElement[] = [];
  let root: unknown;
  let values = 0;
  let attributes = 0;
  parser.on('error', refuse);
  parser.on('doctype', refuse);
  parser.on('xmldecl', ({ encoding }) => {
    if (encoding !== undefined && encoding.toLowerCase() !== 'utf-8') refuse();
  });
  const appendText = (part: string) => {
    const element = open.at(-1);
    if (element !== undefined) element.text += part;
  };
  parser.on('text', appendText);
  parser.on('cdata', appendText);
  parser.on('opentagstart', () => {
    attributes = 0;
    if (++values > max_body_values) throw new XmlFault('tooManyValues');
  });
  parser.on('attribute', () => {
    if (++attributes > max_attributes) refuse();
  });
  parser.on('opentag', ({ name, attributes: { key, nil } }) => {
    if (!isPlaceOf(name, open)) refuse();
    const element = { name, key: name === 'entry' && key !== undefined ? String(key) : name };
    open.push({ ...element, isNull: nil === 'true', text: '', children: [] });
  });
  parser.on('closetag', () => {
    const closed = open.pop();
    if (closed === undefined) return;
    const value = readValue(closed, open);
    const parent = open.at(-1);
    if (parent === undefined) root = value;
    else parent.children.push({ key: closed.key, isItem: closed.name === 'item', value });
  });
  for (let at = 0; at < text.length; at += slice_length) {
    if (at > 0) await yieldTurn();
    parser.write(text.slice(at, at + slice_length));
  }
  parser.close();
  return root;
}

function refuse(): never {
  throw new XmlFault('malformed');
}

/** The root is `stream`, or `streams` with nothing but `stream`; an element with children is as deep as an object in JSON. */
function isPlaceOf(name: string, open: readonly OpenElement[]): boolean {
  if (open.length === 0) return name === 'stream' || name === 'streams';
  if (open.length === 1 && open[0]?.name === 'streams') return name === 'stream';
  return open.length <= max_depth;
}

/** @param above the open elements around the closed one */
function readValue({ key, isNull, text, children }: OpenElement, above: readonly OpenElement[]): unknown {
  const depth = above.length - (above[0]?.name === 'streams' ? 1 : 0);
  if (above.length === 0 && key === 'streams') return hasNoText(text) ? children.map(({ value }) => value) : refuse();
  if (depth === 0) return hasNoText(text) ? objectOf(children) : refuse();
  if (isNull) return null;
  if (children.length === 0) return depth === 1 && key === 'data' && hasNoText(text) ? {} : text;
  if (!hasNoText(text)) refuse();
  return children.every(({ isItem }) => isItem) ? children.map(({ value }) => value) : objectOf(children);
}

function hasNoText(text: string): boolean {
  return !/[^ \t\r\n]/.test(text);
}

/** Builds an object; the last value of a repeated key counts, as in JSON. */
function objectOf(children: readonly Child[]): Values {
  const object: Values = Object.create(null) as Values;
  for (const { key, value } of children) object[key] = value;
  return object;
}
