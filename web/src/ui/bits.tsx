// Small components that every page uses.
import type { ComponentChildren, JSX } from "preact";
import { bytes, exact, latency, short, span, visible } from "../format.ts";
import { t } from "../strings.ts";
import type { State } from "../types.ts";
import { Icon, type IconName } from "./icon.tsx";

/** Longer names may need more lines than a row has; signs that are put on others may reach into other rows. */
const MAY_NEED_ROOM = /^.{41}|\p{M}/su;

/** A name from outside: isolated, so that it can't change the text direction around it, and shown whole on hover. */
export function Name({ value }: { value: string }) {
  const shown = visible(value);
  return (
    <bdi class={MAY_NEED_ROOM.test(shown) ? "name long" : "name"} title={shown}>
      {shown}
    </bdi>
  );
}

const FORMS = {
  count: (v: number) => [short(v), exact(v)],
  rate: (v: number) => [short(v), exact(v)],
  bytes: (v: number) => [bytes(v), `${exact(v)} B`],
  ms: (v: number) => [latency(v), `${exact(v)} ms`],
  pct: (v: number) => [`${Math.round(v)} %`, `${exact(v)} %`],
} as const;

/** A number as people say it, with the exact number on hover. A missing number is a dash, never a 0. */
export function Num({ value, as = "count" }: { value: number | null | undefined; as?: keyof typeof FORMS }) {
  if (value === null || value === undefined || !Number.isFinite(value)) return <span class="num none">{t.none}</span>;
  const [text, title] = FORMS[as](value);
  return (
    <data class="num" value={value} title={title}>
      {text}
    </data>
  );
}

export function StateBadge({ state, compact }: { state: State; compact?: boolean }) {
  const known: State = state in t.states ? state : "unknown";
  return (
    <span class={`state ${known}${compact ? " compact" : ""}`}>
      <Icon name={known} size={14} />
      <span>{t.states[known]}</span>
    </span>
  );
}

export function Tag({ children, icon, kind = "" }: { children: ComponentChildren; icon?: IconName; kind?: string }) {
  return (
    <span class={`tag ${kind}`}>
      {icon ? <Icon name={icon} size={12} /> : null}
      {children}
    </span>
  );
}

type ButtonProps = Omit<JSX.ButtonHTMLAttributes<HTMLButtonElement>, "icon"> & { icon?: IconName; look?: "primary" | "quiet" | "danger"; busy?: boolean };

export function Button({ icon, look, busy, children, type = "button", disabled, ...rest }: ButtonProps) {
  return (
    <button type={type} class={`button ${look ?? ""}`} disabled={disabled} aria-busy={busy ? "true" : undefined} {...rest}>
      {icon ? <Icon name={icon} /> : null}
      {children ? <span>{children}</span> : null}
    </button>
  );
}

export function Header({ title, children, lead }: { title: ComponentChildren; lead?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="page-head">
      <div class="page-title">
        <h1>{title}</h1>
        {lead}
      </div>
      {children ? <div class="actions">{children}</div> : null}
    </header>
  );
}

/** The text for an empty place: why it is empty, and what to do next. */
export function Empty({ title, text, children }: { title: string; text?: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {text ? <p>{text}</p> : null}
      {children ? <div class="actions">{children}</div> : null}
    </div>
  );
}

export function Trouble({ title, text, onRetry }: { title?: string; text: string; onRetry?: () => void }) {
  return (
    <div class="note bad" role="alert">
      <Icon name="bad" />
      <div>
        {title ? <strong>{title} </strong> : null}
        <bdi>{visible(text)}</bdi>
      </div>
      {onRetry ? <Button onClick={onRetry}>{t.problems.retry}</Button> : null}
    </div>
  );
}

export function Note({ kind, children }: { kind: "ok" | "warn" | "info"; children: ComponentChildren }) {
  return (
    <div class={`note ${kind}`} role="status">
      <Icon name={kind === "info" ? "unknown" : kind} />
      <div>{children}</div>
    </div>
  );
}

/** Grey lines where the content will be, so that nothing jumps when it arrives. */
export function Loading({ lines = 6 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label={t.loading}>
      {Array.from({ length: lines }, (_, i) => (
        <div key={i} />
      ))}
    </div>
  );
}

/** How full something is, as a bar and a number. */
export function Meter({ value, title }: { value: number | null; title?: string | undefined }) {
  if (value === null || !Number.isFinite(value)) return <span class="num none">{t.none}</span>;
  const part = Math.min(100, Math.max(0, value));
  const level = part >= 90 ? "bad" : part >= 80 ? "warn" : "ok";
  return (
    <span class={`meter ${level}`} title={title ?? `${exact(value)} %`}>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="8" />
        <rect class="fill" width={part} height="8" />
      </svg>
      <data class="num" value={value}>{`${Math.round(value)} %`}</data>
    </span>
  );
}

export const ago = (ms: number): string => t.overview.ago(span(ms));
