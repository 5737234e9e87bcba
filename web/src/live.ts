// The overview, once a second. One tab of the browser holds the stream and passes it on to the others: with
// HTTP/1.1 a browser has six connections to a server, and six tabs would take all of them.
import { computed, signal } from "@preact/signals";
import { api, byItself, Problem } from "./api.ts";
import { tellYou } from "./roles.ts";
import type { Overview } from "./types.ts";

export const overview = signal<Overview | null>(null);
/** When the last snapshot came, by this browser's clock. */
export const heardAt = signal(0);
/** This browser's time, updated twice a second, so that ages grow without news. */
export const now = signal(Date.now());
/** By how much this browser's clock is ahead of the server's, or behind if negative. */
let ahead = 0;
/** The server's time, as far as the last snapshot told it: the age of what the server stamps is by this clock. */
export const serverNow = computed(() => now.value - ahead);
/** The page reports it when the server has been silent for this long. */
const SILENCE_MS = 4000;
const RETRY_MS = 2000;

/** The gateways whose tokens have only the right to read. One text, so that the news of each second changes nothing. */
const onlyRead = computed(() => (overview.value?.rows ?? []).filter((row) => row.right === "read").map((row) => row.id).join(" "));
/** Whether the console's token lets it act on a gateway. The gateway decides; the page does not offer what it would refuse. */
export const tokenActs = (gateway: string): boolean => !onlyRead.value.split(" ").includes(gateway);

const stale = computed(() => heardAt.value > 0 && now.value - heardAt.value > SILENCE_MS);
/** Who asks is drawn again when this changes, and not with each tick of the clock. */
export const isStale = (): boolean => stale.value;

let stopped = true;
let source: EventSource | null = null;
let retry = 0;
let release: (() => void) | null = null;
/** No user asks for what this file asks for after the stream has ended. */
const unasked = new AbortController().signal;
byItself.add(unasked);
const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("tidegate-live") : null;

function take(text: string): void {
  try {
    const snapshot = JSON.parse(text) as Overview;
    if (!Array.isArray(snapshot.rows)) return;
    if (snapshot.you) tellYou(snapshot.you);
    overview.value = snapshot;
    const heard = Date.now();
    if (Number.isFinite(snapshot.at_ms)) ahead = heard - snapshot.at_ms;
    heardAt.value = now.value = heard;
  } catch {
    // Half a message is not news; the age on the page shows that.
  }
}

function open(): void {
  if (stopped || source || document.hidden) return;
  source = new EventSource("api/live");
  source.addEventListener("overview", (event) => {
    const text = (event as MessageEvent<string>).data;
    take(text);
    channel?.postMessage(text);
  });
  source.addEventListener("error", () => {
    source?.close();
    source = null;
    clearTimeout(retry);
    // The browser does not say why the stream ended; if the session is over, this request answers 401.
    api("session", { signal: unasked }).catch((error: unknown) => {
      if (error instanceof Problem && error.status === 401) ended();
    });
    retry = window.setTimeout(open, RETRY_MS);
  });
}

let ended: () => void = () => undefined;

/** Starts to listen; `whenEnded` is called when the session is over. */
export function startLive(whenEnded: () => void): void {
  ended = whenEnded;
  if (!stopped) return;
  stopped = false;
  lead();
}

export function stopLive(): void {
  stopped = true;
  clearTimeout(retry);
  source?.close();
  source = null;
  release?.();
  release = null;
  overview.value = null;
  heardAt.value = 0;
}

/** Waits to become the tab that holds the stream; a hidden tab gives it away. */
function lead(): void {
  if (stopped || document.hidden || release) return;
  const hold = () =>
    new Promise<void>((done) => {
      if (stopped || document.hidden) return done();
      release = done;
      open();
    });
  if (navigator.locks && channel) {
    void navigator.locks.request("tidegate-live", hold).catch(() => undefined);
    // Until this tab holds the stream, or another tab passes it on, one plain answer fills the page.
    void api<Overview>("overview").then(
      (first) => overview.value ?? take(JSON.stringify(first)),
      () => undefined,
    );
  } else void hold();
}

channel?.addEventListener("message", (event) => {
  if (!stopped) take(String((event as MessageEvent).data));
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
    release?.();
    release = null;
  } else lead();
});

setInterval(() => (now.value = Date.now()), 500);
