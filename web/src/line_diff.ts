// What differs between two texts, line by line, with some unchanged lines around each difference.

export interface Line {
  readonly kind: "same" | "removed" | "added" | "gap";
  readonly text: string;
  /** Line numbers from 1; 0 where there is none. For a gap, `before` is how many lines are left out. */
  readonly before: number;
  readonly after: number;
}

const AROUND = 3;
/** Above this many cells a middle part is shown as replaced whole: the table would take too long. */
const CELLS_MAX = 4_000_000;

export function lineDiff(before: string, after: string): Line[] {
  const [left, right] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head++;
  let tail = 0;
  while (tail < left.length - head && tail < right.length - head && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail++;
  const lines: Line[] = [];
  for (let i = 0; i < head; i++) lines.push({ kind: "same", text: left[i]!, before: i + 1, after: i + 1 });
  lines.push(...middle(left.slice(head, left.length - tail), right.slice(head, right.length - tail), head));
  for (let i = tail; i > 0; i--) lines.push({ kind: "same", text: left[left.length - i]!, before: left.length - i + 1, after: right.length - i + 1 });
  return folded(lines);
}

/** By the longest common subsequence: files of a gateway are short. */
function middle(left: readonly string[], right: readonly string[], head: number): Line[] {
  const [n, m] = [left.length, right.length];
  const width = m + 1;
  const table = n * m <= CELLS_MAX ? new Uint32Array((n + 1) * width) : null;
  if (table) {
    for (let i = n - 1; i >= 0; i--) {
      for (let j = m - 1; j >= 0; j--) {
        table[i * width + j] = left[i] === right[j] ? table[(i + 1) * width + j + 1]! + 1 : Math.max(table[(i + 1) * width + j]!, table[i * width + j + 1]!);
      }
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < n || j < m) {
    if (table && i < n && j < m && left[i] === right[j]) lines.push({ kind: "same", text: left[i]!, before: head + ++i, after: head + ++j });
    else if (i < n && (j >= m || !table || table[(i + 1) * width + j]! >= table[i * width + j + 1]!)) lines.push({ kind: "removed", text: left[i]!, before: head + ++i, after: 0 });
    else lines.push({ kind: "added", text: right[j]!, before: 0, after: head + ++j });
  }
  return lines;
}

function folded(lines: readonly Line[]): Line[] {
  const near = (at: number) => lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some((line) => line.kind !== "same");
  const out: Line[] = [];
  let left = 0;
  lines.forEach((line, at) => {
    if (line.kind === "same" && !near(at)) return void left++;
    if (left) out.push({ kind: "gap", text: "", before: left, after: 0 });
    left = 0;
    out.push(line);
  });
  if (left && out.length) out.push({ kind: "gap", text: "", before: left, after: 0 });
  return out;
}
