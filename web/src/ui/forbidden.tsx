// What the role does not reach: which one is missing, and who gives it.
import { api, Problem, reason } from "../api.ts";
import { tokenActs } from "../live.ts";
import { link } from "../router.ts";
import { roleEverywhere, you, type Role } from "../roles.ts";
import { clusterOf, gatewayOf, loadRegistry, registryProblem } from "../state.ts";
import { t } from "../strings.ts";
import { Empty, Header, Loading, Note, Trouble } from "./bits.tsx";
import { Icon } from "./icon.tsx";
import { usePoll } from "./poll.ts";

const r = t.roles;

export function Forbidden({ needs, has = roleEverywhere(), on = r.everywhere }: { needs: Role; has?: Role; on?: string }) {
  return (
    <>
      <Header title={r.missing(r.names[needs])} />
      <div class="empty">
        <Icon name="lock" size={28} />
        <p>{r.missingText(r.names[needs], on, r.names[has])}</p>
        <div class="actions">
          <a class="button" href={link([])}>
            {t.problems.toOverview}
          </a>
        </div>
      </div>
    </>
  );
}

/** On a page that can be looked at, where what it does cannot be done. */
export function RoleNote({ needs, has, what }: { needs: Role; has: Role; what: string }) {
  return <Note kind="info">{r.note(what, r.names[needs], r.names[has])}</Note>;
}

/** On a page of a gateway whose token only reads. */
export function TokenNote({ gateway, what }: { gateway: string; what: string }) {
  return tokenActs(gateway) ? null : <Note kind="info">{r.token(what)}</Note>;
}

/** The registry that is known here has no such entry: it is not registered, or hidden, or newer than what is known. */
export function Absent({ kind, id, text }: { kind: "clusters" | "gateways"; id: string; text: string }) {
  const ask = async (signal: AbortSignal): Promise<"missing" | "hidden"> => {
    try {
      await api(`${kind}/${encodeURIComponent(id)}/${kind === "clusters" ? "nodes" : "lag?queue="}`, { signal });
    } catch (error) {
      if (error instanceof Problem && error.type === "missing_role") return "hidden";
      if (error instanceof Problem && error.status === 404) return "missing";
      throw new Error(reason(error));
    }
    // The server knows it: this page gives way once the registry has it.
    await loadRegistry();
    if (!(kind === "clusters" ? clusterOf(id) : gatewayOf(id))) throw new Error(registryProblem.value ?? text);
    return "missing";
  };
  // Asked again when the roles change.
  const { data, problem, again } = usePoll(ask, 0, [kind, id, you.value]);
  if (data === "hidden") return <Forbidden needs="viewer" has="none" on={kind === "clusters" ? r.onCluster : r.onGateway} />;
  if (data) {
    return (
      <Empty title={text}>
        <a class="button" href={link([])}>
          {t.problems.toOverview}
        </a>
      </Empty>
    );
  }
  return problem ? <Trouble text={problem} onRetry={again} /> : <Loading />;
}
