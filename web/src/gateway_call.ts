// Calls to a gateway's admin API through the console, and what they answer.
import { api, Problem } from "./api.ts";
import { confirmed, type Call } from "./call.tsx";
import { link } from "./router.ts";
import { gatewayOf } from "./state.ts";
import { t } from "./strings.ts";
import type { CallResult } from "./types.ts";

/** The answer of a call to the admin API that must succeed; asks the user if the call must be confirmed. */
export const ask = async <T>(gateway: string, what: Call, abort?: AbortSignal): Promise<T> => (await askText<T>(gateway, what, abort)).value;

/** The same, with the answer as it is written. */
export async function askText<T>(gateway: string, what: Call, abort?: AbortSignal): Promise<{ value: T; text: string }> {
  const answer = await confirmed({ ...what, on: gatewayOf(gateway)?.name ?? gateway }, (confirm) =>
    api<CallResult>(`gateways/${encodeURIComponent(gateway)}/call`, {
      method: "POST",
      body: { ...what, ...(confirm ? { confirm } : {}) },
      ...(abort ? { signal: abort } : {}),
    }),
  );
  let value: unknown;
  try {
    value = JSON.parse(answer.body);
  } catch {
    throw new Problem(answer.status, "not_json", t.problems.notJson(answer.status));
  }
  if (answer.status < 400) return { value: value as T, text: answer.body };
  const error = (value as { error?: { reason?: string } }).error;
  throw new Problem(answer.status, "gateway", `${answer.status}: ${error?.reason ?? answer.body.slice(0, 300)}`);
}

/** Path and query; empty parameters are left out. */
export function pathOf(parts: readonly string[], query: Readonly<Record<string, string | number | boolean | undefined>> = {}): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined && value !== "") words.set(key, String(value));
  const tail = words.toString().replaceAll("+", "%20");
  return `/${parts.map(encodeURIComponent).join("/")}${tail ? `?${tail}` : ""}`;
}

/** The link to a document's trace, from its action; none if there is no id, or one that a browser would alter. */
export function traceLink(gateway: string, action: unknown, index?: string | null): string | null {
  const meta = action && typeof action === "object" ? (Object.values(action)[0] as Record<string, unknown> | null) : null;
  const id = typeof meta?._id === "number" && Number.isSafeInteger(meta._id) ? String(meta._id) : meta?._id;
  const name = index ?? meta?._index;
  if (typeof id !== "string" || typeof name !== "string") return null;
  const routing = meta?.routing ?? meta?._routing;
  return link(["trace"], { g: gateway, index: name, id, ...(typeof routing === "string" ? { routing } : {}) });
}

export interface Wait {
  readonly reason: string;
  readonly why: string;
  readonly documents?: number;
  readonly cluster?: string;
  readonly lanes?: readonly number[];
  readonly for_s?: number | null;
  readonly next_try_s?: number | null;
}

export interface Lane {
  readonly accepted: number;
  readonly done: number;
  readonly dead: number;
  readonly pending_bytes: number;
  readonly position: number;
  readonly doing: string;
  /** The lane's requests at nodes that have not answered; older gateways leave this key out. */
  readonly waits_for?: readonly { readonly node: string; readonly documents: number; readonly for_s: number }[];
  readonly why: string | null;
}

export const STATES = ["indexed", "dead", "parked", "pending", "replayed", "purged", "skipped", "lost"] as const;
export type DocState = (typeof STATES)[number];

export type Group = Readonly<Record<DocState, number>> & {
  readonly rewound: number;
  readonly pending_bytes: number;
  readonly accounted: number | null;
  readonly states: number | null;
  /** Null for a queue in Kafka, where no gateway can know. */
  readonly adds_up: boolean | null;
  readonly waits: readonly Wait[];
  readonly cluster?: string;
  readonly pipeline?: string;
  readonly state?: string;
  readonly lag_s?: number | null;
  readonly lanes?: readonly Lane[];
};

export interface Queue {
  readonly accepted: number;
  readonly records: number;
  readonly bytes: number;
  readonly start: number;
  readonly end: number;
  readonly topic?: string;
  readonly poisoned: string | null;
  readonly refuses: unknown;
  readonly dead_letters: number;
  readonly groups: Readonly<Record<string, Group>>;
}

export interface Queues {
  readonly at_ms: number;
  readonly queues: Readonly<Record<string, Queue>>;
}

export interface Lag {
  readonly step_ms: number;
  readonly from_ms: number;
  readonly groups: Readonly<Record<string, { readonly lag_s: readonly (number | null)[]; readonly pending: readonly (number | null)[] }>>;
}
