// Finds the names that a few typed letters mean, the best match first. Pure.

/** How well the typed words match: the lower the better; null if one of them does not match. */
export function distance(typed: string, label: string): number | null {
  const lower = label.toLowerCase();
  let sum = 0;
  for (const word of typed.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = lower.indexOf(word);
    if (at < 0) return null;
    const atWord = at === 0 || /[\s:._/-]/.test(lower[at - 1]!);
    sum += at + (atWord ? 0 : 100);
  }
  return sum;
}

/** The matches, the best first; equal ones keep their order. */
export function ranked<T>(typed: string, all: readonly T[], label: (one: T) => string): T[] {
  const fitting = all.flatMap((one, order) => {
    const far = distance(typed, label(one));
    return far === null ? [] : [{ one, far, order }];
  });
  return fitting.sort((a, b) => a.far - b.far || a.order - b.order).map(({ one }) => one);
}
