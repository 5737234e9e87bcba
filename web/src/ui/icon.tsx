// Icons, drawn in the page without a file or a font. The shapes follow Lucide (ISC).
const PATHS = {
  overview: "M3 12h4l3 8 4-16 3 8h4",
  cluster: "M4 5h16v5H4zM4 14h16v5H4zM8 7.500h.01M8 16.500h.01",
  templates: "M5 3h9l5 5v13H5zM14 3v5h5M9 13h6M9 17h6",
  dev: "M5 7l5 5-5 5M13 18h6",
  registry: "M12 3c4.500 0 8 1.300 8 3s-3.500 3-8 3-8-1.300-8-3 3.500-3 8-3zM4 6v6c0 1.700 3.500 3 8 3s8-1.300 8-3V6M4 12v6c0 1.700 3.500 3 8 3s8-1.300 8-3v-6",
  audit: "M9 4h6v3H9zM9 5H5v16h14V5h-4M9 12h6M9 16h4",
  bell: "M6 16V10a6 6 0 0 1 12 0v6l2 2H4zM10 21h4",
  heat: "M4 4h4v4H4zM10 4h4v4h-4zM16 4h4v4h-4zM4 10h4v4H4zM10 10h4v4h-4zM4 16h4v4H4z",
  gateway: "M4 12h6M14 12h6M17 8l4 4-4 4M10 6v12M14 6v12",
  search: "M10.500 4a6.500 6.500 0 1 1 0 13 6.500 6.500 0 0 1 0-13zM15.200 15.200L21 21",
  ok: "M5 12.500l4.500 4.500L19 7.500",
  warn: "M12 4L2.500 20h19zM12 10v4M12 17h.01",
  bad: "M8 3h8l5 5v8l-5 5H8l-5-5V8zM9 9l6 6M15 9l-6 6",
  unknown: "M9 9a3 3 0 1 1 4.500 2.600c-1 .6-1.500 1.200-1.500 2.400M12 18h.01",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  table: "M4 5h16v14H4zM4 10h16M10 5v14",
  chart: "M4 4v16h16M8 15l4-5 3 3 5-7",
  play: "M7 4l13 8-13 8z",
  stop: "M6 6h12v12H6z",
  menu: "M4 6h16M4 12h16M4 18h16",
  lock: "M6 11h12v9H6zM9 11V8a3 3 0 0 1 6 0v3",
  shield: "M12 3l8 3v6c0 5-3.500 8-8 9-4.500-1-8-4-8-9V6z",
  user: "M12 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM4 21c0-4 3.500-6 8-6s8 2 8 6",
  out: "M10 4H5v16h5M14 8l4 4-4 4M9 12h9",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  clock: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18zM12 7v5l3 3",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
