// The state that all pages share: the user, the registry, and the theme.
import { computed, effect, signal } from "@preact/signals";
import { api, lostSession, Problem } from "./api.ts";
import { overview, startLive, stopLive } from "./live.ts";
import { tellYou, you } from "./roles.ts";
import type { Cluster, Gateway, Registry, Session, Ways } from "./types.ts";

export type Gate = { at: "asking" } | { at: "login"; ways: Ways } | { at: "setup"; ways: Ways } | { at: "in"; session: Session } | { at: "unreachable"; why: string };
export const gate = signal<Gate>({ at: "asking" });
export const registry = signal<Registry | null>(null);
export const registryProblem = signal<string | null>(null);

/** How users may log in, as the server said last. */
let ways: Ways = { password: true, oidc: null };

export async function askSession(): Promise<void> {
  try {
    enter(await api<Session>("session"));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    stopLive();
    if (error.status === 401) {
      ways = (error.body["login"] as Ways | undefined) ?? ways;
      // With a provider, the first user of the console's own is made only by whoever has the link.
      const isFirst = error.body["first_start"] === true && (!ways.oidc || /setup=/.test(location.hash));
      gate.value = { at: isFirst ? "setup" : "login", ways };
    }
    else gate.value = { at: "unreachable", why: error.message };
  }
}

export function enter(session: Session): void {
  tellYou(session.user);
  ways = session.login ?? ways;
  gate.value = { at: "in", session };
  startLive(leave);
  void loadRegistry();
}

export function leave(): void {
  stopLive();
  // What is still on its way was asked for by somebody else.
  newest++;
  loading = Promise.resolve();
  registry.value = null;
  you.value = null;
  if (gate.peek().at !== "login") gate.value = { at: "login", ways };
}

/** Ends the session, and the provider's too if it has one: then the provider leads back here. */
export async function logOut(): Promise<void> {
  try {
    const told = await api<{ end_session?: string | null }>("logout", { method: "POST" });
    if (told.end_session) {
      location.assign(told.end_session);
      return;
    }
  } catch {
    // The session is gone, or the server is: the login page says which.
  }
  leave();
}

effect(() => {
  if (lostSession.value > 0) leave();
});

// Another role shows other entries.
effect(() => {
  if (you.value && gate.peek().at === "in") void loadRegistry();
});

/** The number of the newest question for the registry. Answers to earlier ones come too late. */
let newest = 0;
let loading: Promise<void> = Promise.resolve();

/** Loads the registry. If somebody asks again meanwhile, the newer answer is waited for. */
export function loadRegistry(): Promise<void> {
  const mine = ++newest;
  const asked = async () => {
    try {
      const found = await api<Registry>("registry");
      if (mine !== newest) return loading;
      registry.value = found;
      registryProblem.value = null;
    } catch (error) {
      if (mine !== newest) return loading;
      registryProblem.value = error instanceof Error ? error.message : String(error);
    }
  };
  return (loading = asked());
}

type Known = { readonly id: string; readonly name: string; readonly colour?: string | null | undefined; readonly read_only?: boolean | undefined; readonly protected?: boolean | undefined };
const words = (kind: string, one: Known): string => JSON.stringify([kind, one.id, one.name, one.colour ?? null, !!one.read_only, !!one.protected]);

/** What is registered by the news, as one text: most news change nothing about it. */
const told = computed(() => overview.value && overview.value.rows.map((row) => words(row.kind, row)).sort().join());
let seen = "";

// Entries that somebody else, an import or a gateway brings, or that change, are in the news first.
effect(() => {
  const [now, known] = [told.value, registry.value];
  if (now === null || !known || now === seen) return;
  seen = now;
  const ours = [...known.clusters.map((one) => words("cluster", one)), ...known.gateways.map((one) => words("gateway", { id: one.id, name: one.name }))];
  if (ours.sort().join() !== now) void loadRegistry();
});

/** The cluster that was looked at last, whose pages the rail links to. */
export const lastCluster = signal("");

export const clusterOf = (id: string | undefined): Cluster | undefined => registry.value?.clusters.find((c) => c.id === id);
export const gatewayOf = (id: string | undefined): Gateway | undefined => registry.value?.gateways.find((g) => g.id === id);

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

function savedTheme(): Theme {
  try {
    const saved = localStorage.getItem("tidegate-theme") as Theme;
    return THEMES.includes(saved) ? saved : "system";
  } catch {
    return "system";
  }
}

export const theme = signal<Theme>(savedTheme());
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const dark = signal(systemDark.matches);
systemDark.addEventListener("change", () => (dark.value = systemDark.matches));
export const isDark = (): boolean => (theme.value === "system" ? dark.value : theme.value === "dark");

effect(() => {
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
  try {
    localStorage.setItem("tidegate-theme", theme.value);
  } catch {
    // Without storage the theme lasts as long as the page.
  }
});
