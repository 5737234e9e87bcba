// A heat map, drawn on a canvas: a row for each node, a cell for each of its shards, in an order that stays. Each
// cell's exact numbers are told under the pointer and by the arrow keys.
import { useEffect, useRef, useState } from "preact/hooks";
import { isDark } from "../state.ts";
import { t } from "../strings.ts";

export interface Cell {
  readonly key: string;
  readonly value: number;
  /** What is told of the cell. */
  readonly words: string;
}

export interface Row {
  readonly name: string;
  /** What stands beside the name. */
  readonly sum: string;
  readonly cells: readonly Cell[];
}

export const STEPS = 5;
const LABEL = 190;
const SIZE_MIN = 9;
const SIZE_MAX = 26;
const GAP = 2;

/** 0 for nothing, otherwise 1 to 5: fifths of the largest value. */
export const stepOf = (value: number, most: number): number => (value <= 0 || most <= 0 ? 0 : Math.min(STEPS, Math.ceil((STEPS * value) / most)));

interface Place {
  readonly row: number;
  readonly cell: Cell;
  readonly x: number;
  readonly y: number;
}

function layout(rows: readonly Row[], width: number): { places: Place[]; tops: number[]; size: number; height: number } {
  const label = Math.min(LABEL, width * 0.4);
  const room = Math.max(SIZE_MIN + GAP, width - label);
  const longest = Math.max(1, ...rows.map((row) => row.cells.length));
  const size = Math.max(SIZE_MIN, Math.min(SIZE_MAX, Math.floor(room / longest) - GAP));
  const columns = Math.max(1, Math.floor(room / (size + GAP)));
  const places: Place[] = [];
  const tops: number[] = [];
  let y = 4;
  rows.forEach((row, at) => {
    tops.push(y);
    row.cells.forEach((cell, i) => places.push({ row: at, cell, x: label + (i % columns) * (size + GAP), y: y + Math.floor(i / columns) * (size + GAP) }));
    y += Math.max(20, Math.ceil(row.cells.length / columns) * (size + GAP)) + 6;
  });
  return { places, tops, size, height: y };
}

export function HeatMap({ title, rows, most }: { title: string; rows: readonly Row[]; most: number }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState<string | null>(null);
  const dark = isDark();
  useEffect(() => {
    const host = box.current!;
    const resize = new ResizeObserver(() => setWidth(host.clientWidth));
    resize.observe(host);
    setWidth(host.clientWidth);
    return () => resize.disconnect();
  }, []);
  const { places, tops, size, height } = layout(rows, width);
  const here = places.find((place) => place.cell.key === at);
  useEffect(() => {
    if (width && canvas.current) draw(canvas.current, { rows, places, tops, size, width, height, most, here });
  }, [rows, width, height, most, here, dark]);
  const point = (event: MouseEvent) => {
    const found = places.find(({ x, y }) => event.offsetX >= x && event.offsetX < x + size + GAP && event.offsetY >= y && event.offsetY < y + size + GAP);
    setAt(found?.cell.key ?? null);
  };
  const move = (event: KeyboardEvent) => {
    const index = here ? places.indexOf(here) : -1;
    const beside = (by: number) => nearest(places, here, by);
    const to = { ArrowLeft: () => places[index - 1], ArrowRight: () => places[index + 1], ArrowUp: () => beside(-1), ArrowDown: () => beside(1), Home: () => places[0], End: () => places.at(-1) }[event.key];
    if (!to) return;
    event.preventDefault();
    const place = index < 0 ? places[0] : to();
    if (place) setAt(place.cell.key);
  };
  return (
    <>
      <div ref={box} class="heat-map" tabIndex={0} role="img" aria-label={`${title}. ${t.heat.help}`} onKeyDown={move}>
        <canvas ref={canvas} data-drawn={places.length} onMouseMove={point} onMouseLeave={() => setAt(null)} />
      </div>
      <p class="plot-told" aria-live="polite">
        {here?.cell.words ?? "\u00a0"}
      </p>
    </>
  );
}

/** The place in the next or the last row that is nearest to this one. */
function nearest(places: readonly Place[], here: Place | undefined, by: number): Place | undefined {
  if (!here) return places[0];
  for (let row = here.row + by; row >= 0 && row <= places.at(-1)!.row; row += by) {
    const there = places.filter((place) => place.row === row);
    if (there.length) return there.reduce((best, one) => (Math.abs(one.x - here.x) < Math.abs(best.x - here.x) ? one : best));
  }
  return undefined;
}

interface Drawing {
  rows: readonly Row[];
  places: readonly Place[];
  tops: readonly number[];
  size: number;
  width: number;
  height: number;
  most: number;
  here: Place | undefined;
}

function draw(canvas: HTMLCanvasElement, { rows, places, tops, size, width, height, most, here }: Drawing): void {
  const scale = Math.min(devicePixelRatio || 1, 32_000 / Math.max(1, height));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const c = canvas.getContext("2d");
  if (!c) return;
  const style = getComputedStyle(canvas);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const steps = Array.from({ length: STEPS + 1 }, (_, i) => colour(`--h${i}`));
  c.scale(scale, scale);
  c.clearRect(0, 0, width, height);
  c.textBaseline = "middle";
  const label = Math.min(LABEL, width * 0.4) - 10;
  rows.forEach((row, i) => {
    const y = tops[i]! + Math.max(9, size / 2);
    c.font = `12px ${style.fontFamily}`;
    c.fillStyle = colour("--text-2");
    const sum = c.measureText(row.sum).width;
    c.fillText(row.sum, label - sum, y);
    c.fillStyle = colour("--text");
    c.font = `500 13px ${style.fontFamily}`;
    c.fillText(cut(c, row.name, label - sum - 12), 0, y);
  });
  for (const { cell, x, y } of places) {
    c.fillStyle = steps[stepOf(cell.value, most)]!;
    c.fillRect(x, y, size, size);
    c.strokeStyle = colour("--line-2");
    c.lineWidth = 1;
    c.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  }
  if (here) {
    c.strokeStyle = colour("--c4");
    c.lineWidth = 2.5;
    c.strokeRect(here.x - 1, here.y - 1, size + 2, size + 2);
  }
}

function cut(c: CanvasRenderingContext2D, text: string, room: number): string {
  if (c.measureText(text).width <= room) return text;
  let fits = text.slice(0, 60);
  while (fits && c.measureText(`${fits}…`).width > room) fits = fits.slice(0, -1);
  return `${fits}…`;
}
