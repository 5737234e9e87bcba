// What surrounds every page: the rail, the gate before it, and the keys. All pages but the first load on
// demand.
import { signal } from "@preact/signals";
import { Component, type ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { clock, span } from "./format.ts";
import { helpOpen, paletteOpen, startKeys } from "./keys.ts";
import { heardAt, isStale, now, overview } from "./live.ts";
import { Login, Setup, Unreachable } from "./pages/gate.tsx";
import { Overview } from "./pages/overview.tsx";
import { Palette } from "./palette.tsx";
import { reaches, roleEverywhere, you } from "./roles.ts";
import { go, link, route } from "./router.ts";
import { clusterOf, gate, gatewayOf, isDark, lastCluster, logOut, registry, theme, THEMES, type Theme } from "./state.ts";
import { t } from "./strings.ts";
import { Button, Empty, Loading, Trouble } from "./ui/bits.tsx";
import { Dialog } from "./ui/dialog.tsx";
import { Absent, Forbidden } from "./ui/forbidden.tsx";
import { Icon, type IconName } from "./ui/icon.tsx";
import { Toasts } from "./ui/toast.tsx";
import { ClusterWhys } from "./ui/whys.tsx";
import { YouButton, YouDialog } from "./you.tsx";
import { visible } from "./format.ts";

type Page = ComponentType<{ id: string }>;
const lazy = {
  config: () => import("./pages/config.tsx").then((m) => m.ConfigPage),
  cluster: () => import("./pages/cluster.tsx").then((m) => m.ClusterPage),
  heat: () => import("./pages/heat.tsx").then((m) => m.HeatPage),
  indices: () => import("./pages/indices.tsx").then((m) => m.Indices),
  templates: () => import("./pages/templates.tsx").then((m) => m.Templates),
  dev: () => import("./pages/dev.tsx").then((m) => m.Dev),
  registry: () => import("./pages/registry.tsx").then((m) => m.Registry),
  alerts: () => import("./pages/alerts.tsx").then((m) => m.Alerts),
  audit: () => import("./pages/audit.tsx").then((m) => m.Audit),
  queues: () => import("./pages/queues.tsx").then((m) => m.QueuesPage),
  trace: () => import("./pages/trace.tsx").then((m) => m.Trace),
  users: () => import("./pages/users.tsx").then((m) => m.Users),
} as const;
type LazyName = keyof typeof lazy;
const loaded = signal<Partial<Record<LazyName, Page>>>({});
const failed = signal<string | null>(null);
const menuOpen = signal(false);

function Lazy({ name, id }: { name: LazyName; id: string }) {
  const Found = loaded.value[name];
  const load = () => {
    failed.value = null;
    lazy[name]().then(
      (page) => (loaded.value = { ...loaded.value, [name]: page as Page }),
      () => (failed.value = t.problems.unreachable),
    );
  };
  useEffect(() => {
    if (!Found) load();
  }, [name]);
  if (Found) return <Found key={id} id={id} />;
  return failed.value ? <Trouble text={failed.value} onRetry={load} /> : <Loading />;
}

/** Keeps the rail when a page crashes. */
class Fence extends Component<{ children: preact.ComponentChildren; at: string }, { broken: string | null }> {
  override state = { broken: null };
  static override getDerivedStateFromError(error: unknown) {
    return { broken: error instanceof Error ? error.message : String(error) };
  }
  override componentDidUpdate(before: { at: string }) {
    if (before.at !== this.props.at && this.state.broken !== null) this.setState({ broken: null });
  }
  override render() {
    if (this.state.broken === null) return this.props.children;
    return <Trouble title={t.problems.crashed} text={this.state.broken} onRetry={() => this.setState({ broken: null })} />;
  }
}

/** The cluster whose pages the rail links to: that of this place, or else the last one, or else the first. */
function currentCluster(): string {
  const { parts, query } = route.value;
  const here = parts[0] === "c" ? parts[1] : parts[0] === "dev" ? query.get("cluster") : undefined;
  return here ?? (clusterOf(lastCluster.value) ? lastCluster.value : (registry.value?.clusters[0]?.id ?? ""));
}

/** The gateway whose pages the rail links to. */
function currentGateway(): string {
  const { parts } = route.value;
  return (parts[0] === "g" ? parts[1] : undefined) ?? (gatewayOf(lastGateway.value) ? lastGateway.value : (registry.value?.gateways[0]?.id ?? ""));
}
const lastGateway = signal("");

function places() {
  const [id, gateway] = [currentCluster(), currentGateway()];
  const to = (...parts: string[]) => () => go(link(parts));
  return {
    o: to(),
    c: id ? to("c", id) : undefined,
    h: id ? to("c", id, "heat") : undefined,
    i: id ? to("c", id, "indices") : undefined,
    t: id ? to("c", id, "templates") : undefined,
    d: to("dev"),
    r: to("registry"),
    a: to("audit"),
    l: to("alerts"),
    u: to("users"),
    q: gateway ? to("g", gateway) : undefined,
    w: to("trace"),
  };
}
startKeys(() => (gate.value.at === "in" ? places() : {}));

function Here() {
  const [first, id = "", third] = route.value.parts;
  switch (first) {
    case undefined:
      return <Overview />;
    case "c":
      if (registry.value && !clusterOf(id)) return <Absent kind="clusters" id={id} text={t.problems.noCluster} />;
      if (third === "heat") return <Lazy name="heat" id={id} />;
      return third === "templates" || third === "indices" ? (
        <>
          <ClusterWhys id={id} />
          <Lazy name={third} id={id} />
        </>
      ) : (
        <Lazy name="cluster" id={id} />
      );
    case "g":
      if (registry.value && !gatewayOf(id)) return <Absent kind="gateways" id={id} text={t.queue.noGateway} />;
      if (third === "config") return reaches(roleEverywhere(), "admin") ? <Lazy name="config" id={id} /> : <Forbidden needs="admin" />;
      return <Lazy name="queues" id={id} />;
    case "audit":
    case "users":
      return reaches(roleEverywhere(), "admin") ? <Lazy name={first} id="" /> : <Forbidden needs="admin" />;
    case "alerts":
    case "dev":
    case "registry":
    case "trace":
      return <Lazy name={first} id="" />;
    default:
      return <NotFound text={t.problems.notFound} />;
  }
}

function NotFound({ text }: { text: string }) {
  return (
    <Empty title={text}>
      <a class="button" href={link([])}>
        {t.problems.toOverview}
      </a>
    </Empty>
  );
}

function NavLink({ to, icon, label, on, badge }: { to: string; icon: IconName; label: string; on: boolean; badge?: { kind: string; n: number; word: string } | undefined }) {
  return (
    <li>
      <a href={to} aria-current={on ? "page" : undefined} onClick={() => (menuOpen.value = false)}>
        <Icon name={icon} size={17} />
        <span>{label}</span>
        {badge ? (
          <span class={`count ${badge.kind}`} title={badge.word}>
            {badge.n}
            <span class="hidden"> {badge.word}</span>
          </span>
        ) : null}
      </a>
    </li>
  );
}

function Rail() {
  const { parts } = route.value;
  const id = currentCluster();
  const gateway = currentGateway();
  useEffect(() => void (id && (lastCluster.value = id)), [id]);
  useEffect(() => void (gateway && (lastGateway.value = gateway)), [gateway]);
  const gateways = registry.value?.gateways ?? [];
  const clusters = registry.value?.clusters ?? [];
  const worst = (["bad", "warn"] as const).map((kind) => ({ kind, n: overview.value?.rows.filter((r) => r.state === kind).length ?? 0, word: t.states[kind] })).find((c) => c.n > 0);
  const alerts = (overview.value?.rows ?? []).flatMap((row) => row.alerts ?? []).filter((one) => !one.silenced);
  const alerting = alerts.length ? { kind: alerts.some((one) => one.severity === "bad") ? "bad" : "warn", n: alerts.length, word: t.alerts.active } : undefined;
  const choose = (to: string) => {
    menuOpen.value = false;
    if (parts[0] === "dev") return go(link(["dev"], { cluster: to }));
    const kept = parts[0] === "c" && ["templates", "heat", "indices"].includes(parts[2] ?? "") ? [parts[2]!] : [];
    go(link(["c", to, ...kept]));
  };
  const session = gate.value.at === "in" ? gate.value.session : null;
  return (
    <header class="rail" data-open={menuOpen.value ? "" : undefined}>
      <a class="skip" href={`#/${parts.join("/")}`} onClick={(e) => (e.preventDefault(), document.querySelector("main")?.focus())}>
        {t.nav.skip}
      </a>
      <div class="brand">
        <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="7" />
          <path d="M5 12c3.500-4 7.500-4 11 0s7.500 4 11 0M5 21c3.500-4 7.500-4 11 0s7.500 4 11 0" />
        </svg>
        <strong>{t.product}</strong>
        <Button class="button quiet menu-button" icon="menu" aria-label={t.nav.menu} aria-expanded={menuOpen.value} onClick={() => (menuOpen.value = !menuOpen.value)} />
      </div>
      <button type="button" class="find" onClick={() => ((menuOpen.value = false), (paletteOpen.value = true))}>
        <span>{t.palette.open}</span>
        <kbd>Ctrl K</kbd>
      </button>
      <nav aria-label={t.nav.label}>
        <ul>
          <NavLink to={link([])} icon="overview" label={t.nav.overview} on={!parts[0]} badge={worst} />
          <NavLink to={link(["alerts"])} icon="bell" label={t.nav.alerts} on={parts[0] === "alerts"} badge={alerting} />
        </ul>
        {clusters.length ? (
          <>
            <label class="switch">
              <span>{t.nav.switchCluster}</span>
              <select value={id} onChange={(e) => choose(e.currentTarget.value)}>
                {clusters.map((c) => (
                  <option key={c.id} value={c.id}>
                    {visible(c.name).slice(0, 60)}
                  </option>
                ))}
              </select>
            </label>
            <ul>
              <NavLink to={link(["c", id])} icon="cluster" label={t.nav.cluster} on={parts[0] === "c" && !parts[2]} />
              <NavLink to={link(["c", id, "heat"])} icon="heat" label={t.nav.heat} on={parts[0] === "c" && parts[2] === "heat"} />
              <NavLink to={link(["c", id, "indices"])} icon="table" label={t.nav.indices} on={parts[0] === "c" && parts[2] === "indices"} />
              <NavLink to={link(["c", id, "templates"])} icon="templates" label={t.nav.templates} on={parts[2] === "templates"} />
              <NavLink to={link(["dev"])} icon="dev" label={t.nav.dev} on={parts[0] === "dev"} />
            </ul>
          </>
        ) : null}
        {gateways.length ? (
          <>
            <label class="switch">
              <span>{t.nav.switchGateway}</span>
              <select
                value={gateway}
                onChange={(e) => {
                  menuOpen.value = false;
                  go(link(["g", e.currentTarget.value]));
                }}
              >
                {gateways.map((g) => (
                  <option key={g.id} value={g.id}>
                    {visible(g.name).slice(0, 60)}
                  </option>
                ))}
              </select>
            </label>
            <ul>
              <NavLink to={link(["g", gateway])} icon="gateway" label={t.nav.gateway} on={parts[0] === "g"} />
              <NavLink to={link(["trace"], { g: gateway })} icon="search" label={t.nav.trace} on={parts[0] === "trace"} />
            </ul>
          </>
        ) : null}
        <ul class="apart">
          <NavLink to={link(["registry"])} icon="registry" label={t.nav.registry} on={parts[0] === "registry"} />
          {reaches(roleEverywhere(), "admin") ? (
            <>
              <NavLink to={link(["users"])} icon="user" label={t.nav.users} on={parts[0] === "users"} />
              <NavLink to={link(["audit"])} icon="audit" label={t.nav.audit} on={parts[0] === "audit"} />
            </>
          ) : null}
        </ul>
      </nav>
      <div class="rail-foot">
        <label class="switch">
          <span>{t.nav.theme}</span>
          <select value={theme.value} onChange={(e) => (theme.value = e.currentTarget.value as Theme)}>
            {THEMES.map((name) => (
              <option key={name} value={name}>
                {t.nav.themes[name]}
              </option>
            ))}
          </select>
        </label>
        {session && you.value ? (
          <div class="who">
            <YouButton />
            <Button look="quiet" onClick={() => (helpOpen.value = true)} aria-label={t.nav.help} title={`${t.nav.help} (?)`}>
              ?
            </Button>
            <Button look="quiet" icon="out" aria-label={t.nav.logout} title={t.nav.logout} onClick={() => void logOut()} />
          </div>
        ) : null}
        <p class="version">{session ? visible(session.version) : ""}</p>
      </div>
    </header>
  );
}

function Help() {
  if (!helpOpen.value) return null;
  return (
    <Dialog title={t.help.title} onClose={() => (helpOpen.value = false)}>
      <dl class="keys">
        {t.help.rows.map(([key, what]) => (
          <div key={key}>
            <dt>
              {key.split(" ").filter(Boolean).map((k) => (
                <kbd key={k}>{k}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

function StaleBar() {
  if (!isStale()) return null;
  return (
    <>
      {/* Read out once; the age beside it changes every second. */}
      <p class="hidden" role="alert">
        {t.problems.silent}
      </p>
      <div class="note warn stale-bar">
        <Icon name="clock" />
        <div>{t.problems.stale(span(now.value - heardAt.value), clock(heardAt.value))}</div>
      </div>
    </>
  );
}

function titleOf(): string {
  const [first, id, third] = route.value.parts;
  const cluster = first === "g" ? gatewayOf(id) : clusterOf(id);
  const page = { g: t.nav.gateway, c: third === "templates" ? t.templates.title : third === "heat" ? t.heat.title : third === "indices" ? t.indices.title : t.nav.cluster, dev: t.dev.title, registry: t.registry.title, alerts: t.alerts.title, audit: t.audit.title, users: t.users.title }[first ?? ""] ?? t.overview.title;
  return `${page}${cluster ? ` · ${visible(cluster.name).slice(0, 60)}` : ""} · ${t.product}`;
}

export function Shell() {
  const at = gate.value;
  const title = at.at === "in" ? titleOf() : `${t.product} ${t.console}`;
  useEffect(() => void (document.title = title), [title]);
  const place = route.value.parts.join("/");
  useEffect(() => {
    if (at.at === "in") document.querySelector("main")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [place]);
  void isDark();
  if (at.at === "asking") return <Loading />;
  if (at.at === "unreachable") return <Unreachable why={at.why} />;
  if (at.at === "setup" || at.at === "login") return at.at === "setup" ? <Setup /> : <Login ways={at.ways} />;
  return (
    <div class="shell">
      <Rail />
      <main tabIndex={-1}>
        <StaleBar />
        <Fence at={place}>
          <Here />
        </Fence>
      </main>
      <Toasts />
      <Help />
      <Palette />
      <YouDialog />
    </div>
  );
}
