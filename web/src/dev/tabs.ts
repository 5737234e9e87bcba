// Tabs of the editor. The server stores them, so no text is lost with a browser.
import { effect, signal } from "@preact/signals";
import { api, reason } from "../api.ts";
import { you } from "../roles.ts";
import { jsonOf } from "./parts.ts";
import { t } from "../strings.ts";
import type { Tab, Tabs } from "../types.ts";

export const tabs = signal<Tabs | null>(null);
export const saving = signal<{ at: "saved" | "saving" } | { at: "failed"; why: string }>({ at: "saved" });

const PAUSE_MS = 600;
const RETRY_MS = 5000;
let timer = 0;
let dirty = false;
let underWay = false;
/** Whose tabs these are. They outlive a session that ends, for the same user only. */
let owner: string | undefined;
/** Counts owners: what was begun for an earlier one does nothing. */
let turn = 0;

effect(() => {
  const name = you.value?.name;
  if (name === undefined) return;
  if (name === owner) {
    // What could not be saved without a session.
    if (dirty && !underWay) later(PAUSE_MS);
    return;
  }
  [owner, dirty, underWay] = [name, false, false];
  turn++;
  clearTimeout(timer);
  tabs.value = null;
  saving.value = { at: "saved" };
});

const isOwners = (): boolean => you.peek()?.name === owner;

function later(pause: number): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => void save(), pause);
}

const fresh = (title: string, cluster: string | null, text: string): Tab => ({ id: newId(), title, cluster_id: cluster, text });

/** `crypto.randomUUID` is missing on plain HTTP from another machine. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
}

export async function loadTabs(cluster: string | null): Promise<void> {
  if (dirty) return;
  const mine = turn;
  const found = await api<Tabs>("tabs");
  if (dirty || mine !== turn) return;
  const list = found.tabs?.length ? found.tabs : [fresh(t.dev.firstTab, cluster, t.dev.example)];
  const active = list.some((tab) => tab.id === found.active) ? found.active : list[0]!.id;
  tabs.value = { tabs: list, active };
}

function change(next: Tabs): void {
  tabs.value = next;
  dirty = true;
  saving.value = { at: "saving" };
  later(PAUSE_MS);
}

async function save(keepalive = false): Promise<void> {
  if (!dirty || !tabs.value || (underWay && !keepalive) || !isOwners()) return;
  const mine = turn;
  underWay = true;
  clearTimeout(timer);
  try {
    const all = tabs.value;
    const body = keepalive ? all : await jsonOf(all);
    if (mine !== turn) return;
    if (!isOwners()) {
      underWay = false;
      return;
    }
    dirty = tabs.value !== all;
    // A browser sends at most 64 KB after its page is closed.
    await api("tabs", { method: "PUT", body, ...(keepalive && JSON.stringify(all).length < 60_000 ? { keepalive } : {}) });
    if (mine !== turn) return;
    if (!dirty) saving.value = { at: "saved" };
  } catch (error) {
    if (mine !== turn) return;
    dirty = true;
    saving.value = { at: "failed", why: reason(error) };
  }
  underWay = false;
  if (dirty) later(saving.value.at === "failed" ? RETRY_MS : PAUSE_MS);
}

addEventListener("pagehide", () => void save(true));
document.addEventListener("visibilitychange", () => document.hidden && void save(true));

export const activeTab = (): Tab | undefined => tabs.value?.tabs.find((tab) => tab.id === tabs.value?.active);

export function edit(id: string, part: Partial<Omit<Tab, "id">>): void {
  const all = tabs.value;
  if (!all?.tabs.some((tab) => tab.id === id)) return;
  change({ ...all, tabs: all.tabs.map((tab) => (tab.id === id ? { ...tab, ...part } : tab)) });
}

export function choose(id: string): void {
  const all = tabs.value;
  if (all && all.active !== id) change({ ...all, active: id });
}

export function add(cluster: string | null): void {
  const all = tabs.value;
  if (!all) return;
  const numbers = all.tabs.map((tab) => Number(/(\d+)$/.exec(tab.title)?.[1] ?? 0));
  const tab = fresh(t.dev.tabN(Math.max(0, ...numbers) + 1), cluster, "");
  change({ tabs: [...all.tabs, tab], active: tab.id });
}

export function close(id: string): void {
  const all = tabs.value;
  if (!all) return;
  const at = all.tabs.findIndex((tab) => tab.id === id);
  const rest = all.tabs.filter((tab) => tab.id !== id);
  const list = rest.length ? rest : [fresh(t.dev.firstTab, activeTab()?.cluster_id ?? null, "")];
  change({ tabs: list, active: all.active === id ? list[Math.min(at, list.length - 1)]!.id : all.active });
}
