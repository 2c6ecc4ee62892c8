/** Decodes percent-encoded UTF-8. @returns undefined for text that is not percent-encoded UTF-8 */
export function decodePercent(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
