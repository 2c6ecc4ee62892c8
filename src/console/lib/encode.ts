const chunk_bytes = 0x6000;

/** Encodes a file in base64, in pieces whose length is a multiple of three. */
export async function toBase64(file: Blob): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const parts: string[] = [];
  for (let start = 0; start < bytes.length; start += chunk_bytes)
    parts.push(btoa(String.fromCharCode(...bytes.subarray(start, start + chunk_bytes))));
  return parts.join('');
}

/** Quotes a word for a POSIX shell. */
export function quoteForShell(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** An identifier as topics hold it: with the characters that mean something to MQTT percent-encoded. */
export function encodeForTopic(id: string): string {
  return id.replaceAll(/^\$|[%/+#]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}
