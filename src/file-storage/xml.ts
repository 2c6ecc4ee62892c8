import { SaxesParser } from 'saxes';
import { StorageFault } from './limits.js';

/** What reads a document while it comes; names are local. */
export interface Visitor {
  opened?(name: string): void;
  /** `text` is what the element holds itself. */
  closed(name: string, text: string): void;
}

/**
 * Reads XML of a stranger as it comes, never holding all of it. A document type, with which entities would come, is refused.
 * @throws StorageFault for what is not well-formed UTF-8 XML with the root element `root`
 */
export async function readXml(body: AsyncIterable<Buffer>, root: string, visitor: Visitor): Promise<void> {
  const refuse = (cause?: unknown): never => {
    throw new StorageFault('address', 'does not answer as such a storage does', { cause });
  };
  const parser = new SaxesParser({ xmlns: true });
  const texts: string[] = [];
  let begun = false;
  parser.on('error', refuse);
  parser.on('doctype', refuse);
  const collect = (text: string) => {
    if (texts.length > 0) texts.push((texts.pop() ?? '') + text);
  };
  parser.on('text', collect);
  parser.on('cdata', collect);
  parser.on('opentag', ({ local }) => {
    if (!begun && local !== root) refuse();
    begun = true;
    texts.push('');
    visitor.opened?.(local);
  });
  parser.on('closetag', ({ local }) => visitor.closed(local, texts.pop() ?? ''));
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decoded = (chunk?: Buffer) => {
    try {
      return decoder.decode(chunk, { stream: chunk !== undefined });
    } catch (error) {
      return refuse(error);
    }
  };
  for await (const chunk of body) parser.write(decoded(chunk));
  parser.write(decoded()).close();
}
