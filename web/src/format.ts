// Formats numbers as people say them. Hovering shows the exact number: see ui/number.tsx.

const STEPS: readonly [number, string][] = [
  [1e12, " tn"],
  [1e9, " bn"],
  [1e6, " M"],
  [1e3, " k"],
];

const BYTES: readonly [number, string][] = [
  [1e15, " PB"],
  [1e12, " TB"],
  [1e9, " GB"],
  [1e6, " MB"],
  [1e3, " kB"],
];

/** Three digits at most: 999, 1.23 k, 12.3 k, 123 k, 1.2 M. */
export function short(value: number): string {
  return scaled(value, STEPS, "");
}

/** 0 B, 999 B, 3.4 GB; powers of ten, as disks are sold. */
export function bytes(value: number): string {
  return scaled(value, BYTES, " B");
}

function scaled(value: number, steps: readonly [number, string][], unit: string): string {
  const size = Math.abs(value);
  for (const [step, name] of steps) {
    // 999,950 would be rounded to "1000 k": the next step takes it.
    if (size >= step * 0.9995) return digits(value / step) + name;
  }
  return digits(value) + unit;
}

function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95 || Number.isInteger(value)) return String(Math.round(value));
  return value.toFixed(size >= 9.995 ? 1 : size >= 0.995 ? 2 : 2).replace(/\.?0+$/, "");
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });

/** Every digit: 1,234,567. */
export function exact(value: number): string {
  return whole.format(value);
}

/** How long ago or how long: 0.4 s, 14 s, 3 min, 2 h, 5 d. */
export function span(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

/** A latency: 0.42 ms, 12 ms, 3.4 s. */
export function latency(ms: number): string {
  return ms >= 1000 ? `${digits(ms / 1000)} s` : `${digits(ms)} ms`;
}

const two = (n: number) => String(n).padStart(2, "0");

/** 14:03:05 of the browser's time zone. */
export function clock(ms: number): string {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** 2026-11-23 14:03:05 of the browser's time zone. */
export function dateTime(ms: number): string {
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(ms)}`;
}

/** 2026-11-23T14:03 of the browser's time zone, as fields for times have it; empty if it is no time. */
export function localTime(ms: number): string {
  return Number.isFinite(ms) ? dateTime(ms).slice(0, 16).replace(" ", "T") : "";
}

/** Characters that turn the direction of a text or cannot be seen are shown by number; a name of a megabyte is cut. */
export function visible(name: string): string {
  const cut = name.length > 200 ? `${name.slice(0, 200)}…` : name;
  return cut.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => {
    return `⟨${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}
