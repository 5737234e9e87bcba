// A chart over time, drawn by uPlot, which loads with the first chart. The same figures are available as a
// table.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { clock, exact, short } from "../format.ts";
import { asTables } from "../keys.ts";
import { isDark } from "../state.ts";
import { t } from "../strings.ts";
import { Button } from "./bits.tsx";
import { Heads, numbers } from "./heads.tsx";

export interface Line {
  readonly label: string;
  /** The number of one of the theme's colours, 1 to 6. */
  readonly colour: number;
  readonly values: readonly (number | null)[];
  readonly fill?: boolean;
  readonly dash?: readonly number[];
}

export interface ChartProps {
  readonly title: string;
  readonly fromMs: number;
  readonly stepMs: number;
  readonly lines: readonly Line[];
  readonly height?: number;
  /** The top of the axis if it is known, such as 100 %. */
  readonly top?: number;
  readonly unit?: string;
  /** Formats the chart's numbers. */
  readonly say?: (value: number) => string;
}

const TABLE_ROWS = 60;

export function Chart(props: ChartProps) {
  const { title, lines, fromMs, stepMs } = props;
  const [own, setOwn] = useState<boolean | null>(null);
  const table = own ?? asTables.value;
  const all = asTables.value;
  useEffect(() => setOwn(null), [all]);
  const id = useId();
  const empty = lines.every((line) => line.values.every((v) => v === null));
  const say = props.say ?? short;
  const length = Math.max(0, ...lines.map((line) => line.values.length));
  return (
    <section class="panel chart" aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {props.unit ? <span class="unit">{props.unit}</span> : null}
        <ul class="legend">
          {lines.map((line) => (
            <li key={line.label}>
              {lines.length > 1 ? (
                <>
                  <span class={`key c${line.colour}${line.dash ? " dashed" : ""}`} aria-hidden="true" />
                  {line.label}
                </>
              ) : null}
              <strong class="num">{lastOf(line.values, stepMs, say)}</strong>
            </li>
          ))}
        </ul>
        <Button look="quiet" icon={table ? "chart" : "table"} aria-label={`${table ? t.cluster.asChart : t.cluster.asTable}: ${title}`} title={table ? t.cluster.asChart : t.cluster.asTable} onClick={() => setOwn(!table)} />
      </header>
      {empty ? (
        <p class="none chart-none">{t.cluster.noSeries}</p>
      ) : table ? (
        <div class="scroll" tabIndex={0} role="region" aria-labelledby={id}>
          <table class="grid">
            <caption class="hidden">
              {title}, {t.cluster.last(TABLE_ROWS)}
            </caption>
            <Heads of={[t.cluster.time, ...numbers(...lines.map((line) => line.label))]} />
            <tbody>
              {Array.from({ length: Math.min(TABLE_ROWS, length) }, (_, i) => length - 1 - i).map((i) => (
                <tr key={fromMs + i * stepMs}>
                  <th scope="row">{clock(fromMs + i * stepMs)}</th>
                  {lines.map((line) => (
                    <td key={line.label} class="right num">
                      {line.values[i] == null ? t.cluster.gap : exact(line.values[i])}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <Canvas {...props} />
      )}
    </section>
  );
}

/** The last step may not be measured yet: the newest value of the last twelve seconds (or the last but one step) counts as now. */
export function newest(values: readonly (number | null)[], stepMs: number): number | null {
  const back = Math.max(2, Math.ceil(12_000 / stepMs));
  return values.slice(-back).findLast((value) => value !== null) ?? null;
}

function lastOf(values: readonly (number | null)[], stepMs: number, say: (v: number) => string): string {
  const last = newest(values, stepMs);
  return last === null ? t.none : say(last);
}

function Canvas({ title, fromMs, stepMs, lines, height = 150, top, say = short }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [told, tell] = useState("");
  const length = Math.max(...lines.map((line) => line.values.length));
  const xs = Array.from({ length }, (_, i) => (fromMs + i * stepMs) / 1000);
  const data = [xs, ...lines.map((line) => [...line.values])] as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;
  const darkNow = isDark();
  const shape = lines.map((line) => line.label).join("|");

  useEffect(() => {
    const host = box.current!;
    let gone = false;
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: host.clientWidth, height }));
    void Promise.all([import("uplot"), import("uplot/dist/uPlot.min.css")]).then(([{ default: Plot }]) => {
      if (gone) return;
      plot.current = new Plot(options(host, lines, height, top, say, (i) => tell(wordsAt(latest.current, lines, i))), latest.current, host);
      resize.observe(host);
    });
    return () => {
      gone = true;
      resize.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [darkNow, shape, height, top]);
  useEffect(() => plot.current?.setData(data), [fromMs, stepMs, length, lines]);

  const move = (event: KeyboardEvent) => {
    const u = plot.current;
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!u || by === undefined) return;
    event.preventDefault();
    const at = Math.min(length - 1, Math.max(0, (u.cursor.idx ?? length - 1) + by));
    u.setCursor({ left: u.valToPos(xs[at]!, "x"), top: u.bbox.height / devicePixelRatio / 2 });
    tell(wordsAt(data, lines, at));
  };
  return (
    <>
      <div ref={box} class="plot" data-height={height} tabIndex={0} role="img" aria-label={`${title}. ${t.cluster.chartHelp}`} onKeyDown={move} />
      <p class="plot-told" aria-live="polite">
        {told || "\u00a0"}
      </p>
    </>
  );
}

function wordsAt(data: uPlot.AlignedData, lines: readonly Line[], at: number | null): string {
  const x = at === null ? undefined : data[0][at];
  if (at === null || x === undefined) return "";
  const values = lines.map((line, i) => {
    const value = data[i + 1]![at];
    return `${line.label} ${value === null || value === undefined ? t.cluster.gap : exact(value)}`;
  });
  return `${clock(x * 1000)}  ·  ${values.join("  ·  ")}`;
}

function options(host: HTMLElement, lines: readonly Line[], height: number, top: number | undefined, say: (v: number) => string, told: (i: number | null) => void): uPlot.Options {
  const style = getComputedStyle(host);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const font = `11px ${style.fontFamily}`;
  const axis = { stroke: colour("--text-2"), font, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: host.clientWidth || 300,
    height,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false, setScale: false }, sync: { key: "cluster" }, points: { size: 7 } },
    scales: { x: { time: true }, y: { range: (_u, _min, max) => [0, top ?? Math.max(1, (max ?? 0) * 1.1)] } },
    axes: [
      { ...axis, space: 70, size: 26, values: (_u, ticks) => ticks.map((s) => clock(s * 1000).slice(0, 5)) },
      { ...axis, size: 52, space: 32, values: (_u, ticks) => ticks.map((v) => say(v)) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: colour(`--c${line.colour}`),
        width: 1.75,
        spanGaps: false,
        points: { show: false },
        ...(line.fill ? { fill: colour(`--c${line.colour}-fill`) } : {}),
        ...(line.dash ? { dash: [...line.dash] } : {}),
      })),
    ],
    hooks: { setCursor: [(u) => told(u.cursor.idx ?? null)] },
  };
}
