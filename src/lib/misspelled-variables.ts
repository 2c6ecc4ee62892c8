const max_misspelled_letters = 2;

/** Finds variables that are no known names, but share the first word with one and differ in at most two letters. */
export function findMisspelled(
  variables: readonly string[],
  names: readonly string[],
): { variable: string; similar: string }[] {
  return variables
    .filter((variable) => !names.includes(variable))
    .flatMap((variable) => {
      const [firstWord = ''] = variable.split('_');
      const similar = names.find(
        (name) => name.startsWith(`${firstWord}_`) && countEdits(variable, name) <= max_misspelled_letters,
      );
      return similar === undefined ? [] : [{ variable, similar }];
    });
}

/** Counts the letters that turn one text into another (Levenshtein distance). */
function countEdits(text: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, column) => column);
  for (const letter of text) {
    const next = [(row[0] ?? 0) + 1];
    for (const [column, otherLetter] of [...other].entries()) {
      const replaced = (row[column] ?? 0) + (letter === otherLetter ? 0 : 1);
      next.push(Math.min(replaced, (row[column + 1] ?? 0) + 1, (next[column] ?? 0) + 1));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}
