// The clusters and gateways that this console knows.
import { reaches, roleEverywhere, roleOn } from "../roles.ts";
import { link, route } from "../router.ts";
import { clusterOf, gatewayOf, loadRegistry, registry, registryProblem } from "../state.ts";
import { t } from "../strings.ts";
import { Empty, Header, Loading, Name, Tag, Trouble } from "../ui/bits.tsx";
import { Absent, Forbidden, RoleNote } from "../ui/forbidden.tsx";
import { ClusterForm, GatewayForm } from "./registry_form.tsx";
import { Import } from "./registry_import.tsx";
import { Heads } from "../ui/heads.tsx";

export function Registry() {
  const [, kind, id] = route.value.parts;
  const all = registry.value;
  if (!all) return registryProblem.value ? <Trouble text={registryProblem.value} onRetry={() => void loadRegistry()} /> : <Loading />;
  const admin = reaches(roleEverywhere(), "admin");
  if (!admin && (kind === "import" || kind === "gateway" || (kind === "cluster" && id === "new"))) return <Forbidden needs="admin" />;
  if (kind === "import") return <Import />;
  if (kind === "cluster") {
    const entry = clusterOf(id);
    if (!entry && id !== "new") return <Absent kind="clusters" id={id ?? ""} text={t.problems.noCluster} />;
    if (entry && !reaches(roleOn(entry.id), "admin")) return <Forbidden needs="admin" has={roleOn(entry.id)} on={t.roles.onCluster} />;
    return <ClusterForm key={id} entry={entry ?? null} />;
  }
  if (kind === "gateway") {
    const entry = gatewayOf(id);
    return entry || id === "new" ? <GatewayForm key={id} entry={entry ?? null} /> : <Empty title={t.problems.notFound} />;
  }
  return <Lists />;
}

/** A name that leads to its form, for who may change it. */
function Entry({ to, name, may }: { to: string; name: string; may: boolean }) {
  return may ? (
    <a href={to}>
      <Name value={name} />
    </a>
  ) : (
    <Name value={name} />
  );
}

function Lists() {
  const { clusters, gateways } = registry.value!;
  const c = t.registry.columns;
  const admin = reaches(roleEverywhere(), "admin");
  return (
    <>
      <Header title={t.registry.title}>
        {admin ? (
          <>
            <a class="button primary" href={link(["registry", "gateway", "new"])}>
              {t.registry.addGateway}
            </a>
            <a class="button" href={link(["registry", "cluster", "new"])}>
              {t.registry.addCluster}
            </a>
            <a class="button" href={link(["registry", "import"])}>
              {t.registry.importYaml}
            </a>
          </>
        ) : null}
      </Header>
      {admin ? null : <RoleNote needs="admin" has={roleEverywhere()} what={t.registry.registering} />}
      <section class="panel">
        <table class="grid rows">
          <caption>
            <h2>{t.registry.clusters}</h2>
          </caption>
          <Heads of={[c.name, c.endpoints, c.user, c.flags, c.from]} />
          <tbody>
            {clusters.map((cluster) => (
              <tr key={cluster.id} data-row>
                <th scope="row" data-label={c.name}>
                  <span class="env" data-on={cluster.colour ? "" : undefined} style={cluster.colour ? { "--env": cluster.colour } : undefined} />
                  <Entry to={link(["registry", "cluster", cluster.id])} name={cluster.name} may={reaches(roleOn(cluster.id), "admin")} />
                </th>
                <td data-label={c.endpoints}>
                  {cluster.endpoints.slice(0, 3).map((e) => (
                    <div key={e} class="mono">
                      <Name value={e} />
                    </div>
                  ))}
                </td>
                <td data-label={c.user}>{cluster.username ? <Name value={cluster.username} /> : <span class="none">{t.registry.anonymous}</span>}</td>
                <td data-label={c.flags}>
                  {cluster.read_only ? <Tag icon="lock">{t.cluster.readOnly}</Tag> : null} {cluster.protected ? <Tag icon="shield">{t.cluster.guarded}</Tag> : null}{" "}
                  {cluster.verify ? null : <Tag kind="warn">{t.registry.notVerified}</Tag>}
                </td>
                <td data-label={c.from}>{cluster.from_gateway ? <Name value={gatewayOf(cluster.from_gateway)?.name ?? cluster.from_gateway} /> : null}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {clusters.length ? null : <p class="none pad">{t.registry.noClusters}</p>}
      </section>
      <section class="panel">
        <table class="grid rows">
          <caption>
            <h2>{t.registry.gateways}</h2>
          </caption>
          <Heads of={[c.name, c.url, c.clusters]} />
          <tbody>
            {gateways.map((gateway) => (
              <tr key={gateway.id} data-row>
                <th scope="row" data-label={c.name}>
                  <Entry to={link(["registry", "gateway", gateway.id])} name={gateway.name} may={admin} />
                </th>
                <td data-label={c.url} class="mono">
                  <Name value={gateway.url} />
                </td>
                <td data-label={c.clusters}>
                  {gateway.clusters.map((one) =>
                    one.cluster_id ? (
                      <a key={one.name} class="item" href={link(["c", one.cluster_id])}>
                        <Name value={one.name} />
                      </a>
                    ) : (
                      <span key={one.name} class="item">
                        <Name value={one.name} />
                      </span>
                    ),
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {gateways.length ? null : <p class="none pad">{t.registry.noGateways}</p>}
      </section>
    </>
  );
}

