// Ctrl K: goes to any page and does any action by typing a few of its letters.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { visible } from "./format.ts";
import { asTables, helpOpen, paletteOpen } from "./keys.ts";
import { ranked } from "./match.ts";
import { reaches, roleEverywhere, roleOn } from "./roles.ts";
import { go, link } from "./router.ts";
import { registry, theme, THEMES } from "./state.ts";
import { t } from "./strings.ts";

interface Entry {
  readonly label: string;
  readonly hint: string;
  readonly act: () => void;
}

function entries(): Entry[] {
  const to = (label: string, hint: string, parts: string[], query?: Record<string, string>): Entry => ({ label, hint, act: () => go(link(parts, query)) });
  const admin = reaches(roleEverywhere(), "admin");
  const clusters = (registry.value?.clusters ?? []).flatMap(({ id, name: said }) => {
    const name = visible(said).slice(0, 80);
    return [
      to(name, t.nav.cluster, ["c", id]),
      to(`${name}: ${t.nav.heat}`, t.nav.cluster, ["c", id, "heat"]),
      to(`${name}: ${t.nav.indices}`, t.nav.cluster, ["c", id, "indices"]),
      to(`${name}: ${t.nav.templates}`, t.nav.cluster, ["c", id, "templates"]),
      to(`${name}: ${t.nav.dev}`, t.nav.cluster, ["dev"], { cluster: id }),
      ...(reaches(roleOn(id), "admin") ? [to(`${name}: ${t.palette.edit}`, t.nav.registry, ["registry", "cluster", id])] : []),
    ];
  });
  const gateways = (registry.value?.gateways ?? []).flatMap(({ id, name: said }) => {
    const name = visible(said).slice(0, 80);
    return [to(`${name}`, t.nav.switchGateway, ["g", id]), ...(admin ? [to(`${name}: ${t.config.title}`, t.nav.switchGateway, ["g", id, "config"]), to(`${name}: ${t.palette.edit}`, t.nav.registry, ["registry", "gateway", id])] : [])];
  });
  return [
    to(t.nav.overview, t.palette.page, []),
    to(t.nav.dev, t.palette.page, ["dev"]),
    to(t.trace.nothing, t.palette.page, ["trace"]),
    to(t.nav.alerts, t.palette.page, ["alerts"]),
    to(t.nav.registry, t.palette.page, ["registry"]),
    ...(admin ? [to(t.nav.users, t.palette.page, ["users"]), to(t.nav.audit, t.palette.page, ["audit"])] : []),
    ...clusters,
    ...gateways,
    ...(admin
      ? [
          to(t.palette.newCluster, t.palette.action, ["registry", "cluster", "new"]),
          to(t.palette.newGateway, t.palette.action, ["registry", "gateway", "new"]),
          to(t.palette.importFile, t.palette.action, ["registry", "import"]),
          to(t.alerts.webhook.title, t.palette.action, ["alerts", "webhook"]),
          to(t.users.add, t.palette.action, ["users", "new"]),
        ]
      : []),
    { label: t.palette.tables, hint: t.palette.action, act: () => (asTables.value = !asTables.value) },
    ...THEMES.map((name) => ({ label: `${t.nav.theme}: ${t.nav.themes[name]}`, hint: t.palette.action, act: () => void (theme.value = name) })),
    { label: t.palette.keys, hint: t.palette.action, act: () => void (helpOpen.value = true) },
  ];
}

/** The largest number of rows drawn; the others are counted. */
const SHOWN = 50;

export function Palette() {
  return paletteOpen.value ? <Opened onClose={() => (paletteOpen.value = false)} /> : null;
}

function Opened({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const found = ranked(text, entries(), (entry) => entry.label);
  const shown = found.slice(0, SHOWN);
  const here = Math.min(at, shown.length - 1);
  useEffect(() => list.current?.children[here]?.scrollIntoView({ block: "nearest" }), [here, text]);
  const take = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    // The dialog first returns the focus; then the page takes it.
    queueMicrotask(entry.act);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && shown.length) setAt((here + by + shown.length) % shown.length);
    else if (event.key === "Enter") take(shown[here]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label={t.palette.title} onClose={onClose} onClick={(e) => e.target === dialog.current && onClose()}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls={id}
        aria-autocomplete="list"
        aria-activedescendant={shown.length ? `${id}-${here}` : undefined}
        aria-label={t.palette.title}
        placeholder={t.palette.placeholder}
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(e) => (setText(e.currentTarget.value), setAt(0))}
        onKeyDown={onKeyDown}
      />
      <ul ref={list} id={id} role="listbox" aria-label={t.palette.title}>
        {shown.map((entry, n) => (
          <li key={`${entry.label}-${entry.hint}-${n}`} id={`${id}-${n}`} role="option" aria-selected={n === here} onClick={() => take(entry)}>
            <span>{entry.label}</span>
            <small>{entry.hint}</small>
          </li>
        ))}
      </ul>
      <p role="status">{shown.length === 0 ? t.palette.none : found.length > SHOWN ? t.palette.more(found.length - SHOWN) : ""}</p>
    </dialog>
  );
}
