import { SaxesParser } from 'saxes';
import { createProtocolFault } from '../limits.js';

/** Callbacks for the elements of a document, by local name. */
export interface XmlVisitor {
  onOpen?(name: string): void;
  /** `text` is the element's own text, without that of its children. */
  onClose(name: string, text: string): void;
}

const max_depth = 32;
const max_attributes = 32;
const max_name_length = 256;
/** For the text of one element, and for input without any complete name, attribute, text or tag. */
const max_text_length = 64 * 1024;

/**
 * Parses untrusted XML as it arrives, without holding the document, at a cost linear in its length. A document type is
 * refused, as it could declare entities.
 * @throws StorageFault unless it is well-formed XML in UTF-8 with the root element `root` and within the limits above
 */
export async function readXml(body: AsyncIterable<Buffer>, root: string, visitor: XmlVisitor): Promise<void> {
  const refuse = (cause?: unknown): never => {
    throw createProtocolFault(cause);
  };
  // not `xmlns`: it resolves each name through all open elements, and only local names are of interest
  const parser = new SaxesParser({ xmlns: false, position: false });
  const texts: string[] = [];
  let attributeCount = 0;
  let isRootSeen = false;
  let silentLength = 0;
  const acceptName = (name: string) => {
    silentLength = 0;
    if (name.length > max_name_length) refuse();
  };
  const collectText = (text: string) => {
    silentLength = 0;
    if (texts.length === 0) return;
    const collected = (texts.pop() ?? '') + text;
    if (collected.length > max_text_length) refuse();
    texts.push(collected);
  };
  parser.on('error', refuse);
  parser.on('doctype', refuse);
  parser.on('text', collectText);
  parser.on('cdata', collectText);
  parser.on('opentagstart', ({ name }) => {
    acceptName(name);
    if (texts.length === max_depth) refuse();
    attributeCount = 0;
  });
  parser.on('attribute', ({ name }) => {
    acceptName(name);
    attributeCount += 1;
    if (attributeCount > max_attributes) refuse();
  });
  parser.on('opentag', ({ name }) => {
    if (!isRootSeen && getLocalName(name) !== root) refuse();
    isRootSeen = true;
    texts.push('');
    visitor.onOpen?.(getLocalName(name));
  });
  parser.on('closetag', ({ name }) => {
    silentLength = 0;
    visitor.onClose(getLocalName(name), texts.pop() ?? '');
  });
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (chunk?: Buffer) => {
    try {
      return decoder.decode(chunk, { stream: chunk !== undefined });
    } catch (error) {
      return refuse(error);
    }
  };
  for await (const chunk of body) {
    silentLength += chunk.length;
    // every event sets the length to 0
    parser.write(decode(chunk));
    if (silentLength > max_text_length) refuse();
  }
  parser.write(decode()).close();
}

function getLocalName(name: string): string {
  return name.slice(name.indexOf(':') + 1);
}
