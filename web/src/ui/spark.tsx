// The last minute as a line in a box of 120 by 24. A gap in the figures is a gap in the line.
import { short } from "../format.ts";
import { t } from "../strings.ts";

const W = 120;
const H = 24;

export function sparkPath(values: readonly (number | null)[], most: number): string {
  const step = values.length > 1 ? W / (values.length - 1) : W;
  let path = "";
  let pen = false;
  values.forEach((value, i) => {
    if (value === null || !Number.isFinite(value)) {
      pen = false;
      return;
    }
    const y = H - 1.5 - (most > 0 ? (value / most) * (H - 3) : 0);
    path += `${pen ? "L" : "M"}${(i * step).toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  });
  return path;
}

export function Spark({ values }: { values: readonly (number | null)[] }) {
  const known = values.filter((v): v is number => v !== null && Number.isFinite(v));
  if (!known.length) return <span class="none">{t.overview.sparkGap}</span>;
  const most = Math.max(...known);
  const path = sparkPath(values, most);
  return (
    <svg class="spark" viewBox={`0 0 ${W} ${H}`} preserveAspectRatio="none" role="img" aria-label={t.overview.sparkLabel(short(known.at(-1)!), short(most))}>
      <path d={path} />
    </svg>
  );
}
