// The last minute as a line in a box of 120 by 24. A gap in the figures is a gap in the line.
import { useRef } from "preact/hooks";
import { short } from "../format.ts";
import { t } from "../strings.ts";
import { useNear } from "./near.ts";

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
  return <Drawn values={values} last={known.at(-1)!} most={Math.max(...known)} />;
}

function Drawn({ values, last, most }: { values: readonly (number | null)[]; last: number; most: number }) {
  const box = useRef<HTMLSpanElement>(null);
  const near = useNear(box);
  return (
    <span ref={box} class="spark" role="img" aria-label={t.overview.sparkLabel(short(last), short(most))}>
      {near ? (
        <svg viewBox={`0 0 ${W} ${H}`} preserveAspectRatio="none" aria-hidden="true" focusable="false">
          <path d={sparkPath(values, most)} />
        </svg>
      ) : null}
    </span>
  );
}
