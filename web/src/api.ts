// The one way to the server. Addresses are relative: the page runs under any prefix.
import { signal } from "@preact/signals";
import { t } from "./strings.ts";

/** A refusal by the server, or the lack of an answer, in words for people. */
export class Problem extends Error {
  constructor(
    /** The status of the answer; 0 if there was none. */
    readonly status: number,
    readonly type: string,
    reason: string,
    readonly body: Readonly<Record<string, unknown>> = {},
  ) {
    super(reason);
  }
}

/** Counts answers of 401: the page then asks for the login and keeps its place. */
export const lostSession = signal(0);

/** The signals of requests that a page makes by itself: the server counts those as no use of the session. */
export const byItself = new WeakSet<AbortSignal>();

/** Whether somebody has used the page since the last request that counts: whoever writes into a form for half an hour
 * sends nothing, and must not lose it. */
let isUsed = false;
for (const kind of ["keydown", "pointerdown"]) globalThis.addEventListener?.(kind, () => (isUsed = true), { capture: true, passive: true });

/** A body that is a Blob is JSON already. */
export async function api<T>(path: string, options: { method?: string; body?: unknown; signal?: AbortSignal; keepalive?: boolean } = {}): Promise<T> {
  const { method = options.body === undefined ? "GET" : "POST", body, ...rest } = options;
  const headers: Record<string, string> = {};
  if (!isUsed && options.signal && byItself.has(options.signal)) headers["X-Poll"] = "1";
  else isUsed = false;
  const init: RequestInit = { method, cache: "no-store", credentials: "same-origin", headers, ...rest };
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    init.body = body instanceof Blob ? body : JSON.stringify(body ?? {});
  }
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(`api/${path}`, init);
    text = await answer.text();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", t.problems.unreachable);
  }
  let value: unknown;
  try {
    value = text ? JSON.parse(text) : {};
  } catch {
    throw new Problem(answer.status, "not_json", t.problems.notJson(answer.status));
  }
  if (answer.ok) return value as T;
  const body_ = (value ?? {}) as { error?: { type?: string; reason?: string } };
  if (answer.status === 401 && !/^(session|login|setup)$/.test(path)) lostSession.value++;
  throw new Problem(answer.status, body_.error?.type ?? "", body_.error?.reason || t.problems.status(answer.status), body_);
}

export const reason = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === "AbortError";
