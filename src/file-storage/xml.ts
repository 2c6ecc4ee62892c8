import { SaxesParser } from 'saxes';
import { createProtocolFault } from './limits.js';

/** Callbacks for the elements of a document, by local name. */
export interface XmlVisitor {
  onOpen?(name: string): void;
  /** `text` is the element's own text, without that of its children. */
  onClose(name: string, text: string): void;
}

/**
 * Parses untrusted XML as it arrives, without holding the document. A document type is refused, as it could declare entities.
 * @throws StorageFault unless it is well-formed XML in UTF-8 with the root element `root`
 */
export async function readXml(body: AsyncIterable<Buffer>, root: string, visitor: XmlVisitor): Promise<void> {
  const refuse = (cause?: unknown): never => {
    throw createProtocolFault(cause);
  };
  const parser = new SaxesParser({ xmlns: true });
  const texts: string[] = [];
  let isRootOpen = false;
  parser.on('error', refuse);
  parser.on('doctype', refuse);
  const collectText = (text: string) => {
    if (texts.length > 0) texts.push((texts.pop() ?? '') + text);
  };
  parser.on('text', collectText);
  parser.on('cdata', collectText);
  parser.on('opentag', ({ local }) => {
    if (!isRootOpen && local !== root) refuse();
    isRootOpen = true;
    texts.push('');
    visitor.onOpen?.(local);
  });
  parser.on('closetag', ({ local }) => visitor.onClose(local, texts.pop() ?? ''));
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (chunk?: Buffer) => {
    try {
      return decoder.decode(chunk, { stream: chunk !== undefined });
    } catch (error) {
      return refuse(error);
    }
  };
  for await (const chunk of body) parser.write(decode(chunk));
  parser.write(decode()).close();
}
