// The answers of the console's server.

import type { You } from "./roles.ts";

export interface Session {
  readonly user: You;
  readonly version: string;
  readonly login?: Ways;
}

/** How users may log in. */
export interface Ways {
  readonly password: boolean;
  readonly oidc: { readonly label: string } | null;
}

export interface Cluster {
  readonly id: string;
  readonly name: string;
  readonly endpoints: readonly string[];
  readonly username?: string | null;
  readonly has_password: boolean;
  readonly ca_pem?: string | null;
  readonly verify: boolean;
  readonly colour: string | null;
  readonly read_only: boolean;
  readonly protected: boolean;
  readonly from_gateway: string | null;
}

export interface Gateway {
  readonly id: string;
  readonly name: string;
  readonly url: string;
  readonly has_token: boolean;
  readonly ca_pem?: string | null;
  readonly has_client_pem?: boolean;
  readonly verify: boolean;
  readonly clusters: readonly { readonly name: string; readonly cluster_id: string | null }[];
}

export interface Registry {
  readonly clusters: readonly Cluster[];
  readonly gateways: readonly Gateway[];
}

export interface TestStep {
  readonly step: string;
  readonly ok: boolean;
  readonly detail: string;
  readonly took_ms: number;
}

export interface TestResult {
  readonly ok: boolean;
  readonly steps: readonly TestStep[];
  readonly found?: { readonly flavour?: string; readonly version?: string; readonly name?: string; readonly uuid?: string; readonly nodes?: number } | null;
  readonly clusters?: readonly string[];
}

export interface ImportResult {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly problems: readonly { readonly line: number; readonly column: number; readonly reason: string }[];
}

export type State = "ok" | "warn" | "bad" | "unknown";
export type Num = number | null;

export interface Row {
  readonly kind: "cluster" | "gateway";
  readonly id: string;
  readonly name: string;
  readonly colour: string | null;
  /** Of clusters. */
  readonly read_only?: boolean;
  readonly protected?: boolean;
  readonly state: State;
  readonly why: readonly string[];
  readonly seen_ms_ago: Num;
  readonly docs_per_s: Num;
  readonly nodes?: Num;
  readonly health?: string | null;
  readonly version?: string | null;
  readonly flavour?: string | null;
  readonly docs?: Num;
  readonly bytes?: Num;
  readonly requests_per_s?: Num;
  readonly errors_per_s?: Num;
  /** What the console's token of a gateway allows; older gateways and clusters leave it out. */
  readonly right?: "read" | "operate" | null;
  readonly queues?: { readonly pending: number; readonly dead: number; readonly parked: number } | null;
  readonly spark: readonly Num[];
  readonly alerts: readonly { readonly rule: string; readonly severity: Severity; readonly words: string; readonly since_ms: number; readonly silenced: boolean }[];
}

export interface Overview {
  readonly at_ms: number;
  /** Who looks, with the roles of this moment. */
  readonly you: You;
  readonly rows: readonly Row[];
}

export interface Series {
  readonly step_ms: number;
  readonly from_ms: number;
  readonly series: Readonly<Record<string, readonly Num[]>>;
}

/** A gateway's traffic: now, as means over the last ten seconds, and over the last minutes. */
export interface Traffic {
  readonly now: TrafficNow | null;
  readonly step_ms: number;
  readonly from_ms: number;
  readonly series: Readonly<Record<string, readonly Num[]>>;
}

type Counters = Readonly<Record<string, { readonly total: number; readonly per_s: Num }>>;

/** Why bulks or single writes went on whole. */
export interface Passed {
  readonly kind: string;
  readonly why: string;
  readonly meaning: string | null;
  readonly total: number;
  readonly per_s: Num;
}

export interface FlowTraffic {
  /** Older gateways report `requests` alone. */
  readonly counters: Counters;
  readonly passed: readonly Passed[];
}

export interface TrafficNow {
  readonly at_ms: number;
  readonly counters: Counters;
  readonly passed: readonly Passed[];
  readonly entries: Readonly<Record<string, EntryTraffic>>;
  /** Older gateways leave this key out. */
  readonly flows?: Readonly<Record<string, FlowTraffic>>;
  readonly gain?: { readonly nodes: Num; readonly hops_per_s: Num; readonly requests_per_s: Num; readonly cores: Num; readonly request_cpu_ms: number };
  readonly memory: { readonly buffers_bytes: Num; readonly buffers_bytes_max: Num };
  readonly delivery_memory: { readonly bytes: Num; readonly bytes_max: Num } | null;
  readonly clusters: Readonly<Record<string, ClusterView>> | null;
}

export interface TrialLoad {
  readonly documents: number;
  readonly batch: number;
  readonly rounds: number;
  readonly clients: number;
  readonly shards: number;
  readonly replicas: number;
  readonly ids: boolean;
}

export interface Change {
  readonly percent: Num;
  /** Null after a single round. */
  readonly interval: readonly [Num, Num] | null;
  readonly verdict: "more" | "less" | "within_noise" | "unknown";
}

interface TrialAverages {
  readonly counted_per_s: number;
  readonly acknowledged_per_s: number;
  readonly cpu_s: Num;
}

export interface TrialPhase {
  readonly phase: string;
  readonly direct: TrialAverages | null;
  readonly gateway: TrialAverages | null;
  readonly counted: Change | null;
  readonly acknowledged: Change | null;
  readonly cpu: Change | null;
}

export interface TrialRow {
  readonly id: number;
  /** The id of the cluster. */
  readonly cluster: string;
  readonly user: string;
  readonly indices: string;
  readonly load: TrialLoad;
  readonly began_ms: number;
  readonly ended_ms: number | null;
  readonly state: string;
  readonly figures: { readonly cluster: string; readonly runs: number; readonly flawed_runs: number; readonly phases: readonly TrialPhase[] } | null;
}

export interface Trials {
  readonly can_run: boolean;
  readonly is_busy: boolean;
  readonly running: { readonly trial: TrialRow; readonly progress: { readonly done: number; readonly runs: number; readonly said: string; readonly state: string } } | null;
  readonly last: TrialRow | null;
  readonly why: string | null;
  /** Null if the cluster could not be asked. */
  readonly leftovers: readonly string[] | null;
  readonly refused: readonly [string, string] | null;
  readonly clusters: readonly { readonly id: string; readonly name: string; readonly refused: readonly [string, string] | null }[];
  /** The URLs by the entries' names. */
  readonly entries: Readonly<Record<string, string>>;
  /** The ids of the clusters by the entries' names. */
  readonly reach: Readonly<Record<string, readonly string[]>>;
  readonly indices: string;
}

export interface EntryTraffic {
  readonly address: string;
  readonly connections: number;
  readonly requests_per_s: Num;
  readonly in_flight: number;
  readonly refused: number;
  readonly turned_away: number;
  readonly handshakes_failed: number;
}

/** A cluster as a gateway sees it. */
export interface ClusterView {
  readonly state: string;
  readonly warnings: readonly string[] | null;
  readonly indices_split: Num;
  readonly indices_passed: Readonly<Record<string, number>> | null;
  readonly nodes: readonly { readonly name: string; readonly address: string; readonly health: NodeHealth }[] | null;
}

export interface NodeHealth {
  readonly up: boolean;
  readonly in_flight: number;
  readonly limit: number;
  readonly latency_us: number;
  readonly slowness: number;
  readonly busy: number;
  readonly failures: number;
}

export interface NodeRow {
  readonly name: string;
  readonly address: string | null;
  readonly roles: readonly string[] | null;
  readonly cpu_pct: Num;
  readonly heap_pct: Num;
  readonly disk_used_bytes: Num;
  readonly disk_total_bytes: Num;
  readonly docs_per_s: Num;
  readonly rejected: Num;
  readonly queue: Num;
  readonly state: State;
}

export interface Nodes {
  /** Null until the cluster has reported them once. */
  readonly at_ms: number | null;
  readonly nodes: readonly NodeRow[];
}

export interface CallResult {
  readonly status: number;
  readonly took_ms: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly truncated: boolean;
}

export interface Tab {
  readonly id: string;
  readonly title: string;
  readonly cluster_id: string | null;
  readonly text: string;
}

export interface Tabs {
  readonly tabs: readonly Tab[];
  readonly active: string | null;
}

export interface Account extends You {
  readonly made_ms: number;
  /** Null while no session of the user is stored. */
  readonly seen_ms: number | null;
}

export interface ShardHeat {
  readonly index: string;
  readonly shard: number;
  /** A position in the list of nodes; null if no node holds it. */
  readonly node: number | null;
  /** Since the gateways began to count, with the first question. */
  readonly docs: number;
  readonly docs_per_s: number;
  readonly bytes_per_s: number;
  readonly rejected_per_s: number;
  /** Null without an answer in the last seconds. */
  readonly latency_ms: Num;
}

export interface Heat {
  readonly at_ms: number;
  readonly window_s: number;
  readonly nodes: readonly string[];
  /** The hottest first. */
  readonly shards: readonly ShardHeat[];
  readonly left_out: number;
  readonly others_per_s: number;
  /** How many registered gateways deliver to the cluster. */
  readonly gateways: number;
  readonly problems: readonly { readonly gateway: string | null; readonly why: string }[];
}

export interface IndexRow {
  readonly name: string;
  readonly health: string | null;
  readonly status: string | null;
  readonly primaries: number | null;
  readonly replicas: number | null;
  readonly docs: number | null;
  readonly deleted: number | null;
  readonly bytes: number | null;
  readonly primary_bytes: number | null;
  readonly created_ms: number | null;
}

export interface IndexPage {
  /** When the cluster told the list. */
  readonly at_ms: number;
  /** Why the list is not newer. */
  readonly problem: string | null;
  readonly total: number;
  readonly matched: number;
  readonly hidden: number;
  readonly docs: number;
  readonly bytes: number;
  readonly from: number;
  readonly page_rows: number;
  readonly rows: readonly IndexRow[];
}

export type Severity = "bad" | "warn";

export interface Alert {
  readonly rule: string;
  readonly severity: Severity;
  readonly kind: "cluster" | "gateway";
  readonly id: string;
  readonly name: string;
  /** A queue, or a queue and a group; empty for all of it. */
  readonly part: string;
  readonly words: string;
  readonly since_ms: number;
  readonly silence: { readonly until_ms: number; readonly user: string; readonly reason: string } | null;
}

export type EndedAlert = Omit<Alert, "severity" | "silence"> & { readonly resolved_ms: number };

export interface Alerts {
  readonly active: readonly Alert[];
  /** The last one first. */
  readonly ended: readonly EndedAlert[];
  readonly rules: readonly { readonly rule: string; readonly severity: Severity; readonly meaning: string; readonly hold_s: number }[];
  readonly has_webhook: boolean;
}

/** The webhook without its secrets, and its delivery since the console started. */
export interface Webhook {
  readonly webhook: { readonly place: string | null; readonly has_secret: boolean; readonly ca_pem: string | null; readonly verify: boolean } | null;
  readonly waiting: number;
  readonly taken_ms: number | null;
  readonly failed_ms: number | null;
  readonly failed: string | null;
  /** Since the last success. */
  readonly failures: number;
  readonly dropped: number;
}

export interface AuditPage {
  /** The newest first. */
  readonly entries: readonly AuditEntry[];
  readonly searched: number;
  readonly back_to_ms: number | null;
  /** Where to go on; null at the log's beginning. */
  readonly next: string | null;
}

export interface AuditEntry {
  readonly id: number;
  readonly at_ms: number;
  readonly user: string;
  readonly what: string;
  readonly target: string;
  readonly before?: unknown;
  readonly after?: unknown;
  readonly reason?: string | null;
}
