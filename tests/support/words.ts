/** Splits a list of words that is written as text. */
export function wordsOf(text: string): string[] {
  return text.trim().split(/\s+/);
}
