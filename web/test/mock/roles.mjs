// Users and roles, as the real server has them; who is logged in has those of `mock.you`.
export const ROLES = ["none", "viewer", "operator", "admin"];
const reaches = (has, needs) => ROLES.indexOf(has) >= ROLES.indexOf(needs);

export const roleOn = (you, id) => you.clusters[id] ?? you.role;
export const roleOnGateway = (you, { clusters }) => (clusters.length ? ROLES[Math.min(...clusters.map((one) => ROLES.indexOf(one.cluster_id === null ? (you.role === "admin" ? "admin" : "none") : roleOn(you, one.cluster_id))))] : you.role);

export const seen = (mock) => ({
  clusters: mock.clusters.filter((one) => reaches(roleOn(mock.you, one.id), "viewer")),
  gateways: mock.gateways.filter((one) => reaches(roleOnGateway(mock.you, one), "viewer")),
});

/** What is missing for a request, if anything is: `[needs, has, on]`. */
export function missing(mock, method, [first, second, third], body) {
  const everywhere = (needs) => (reaches(mock.you.role, needs) ? null : [needs, mock.you.role, "for everything"]);
  if (["users", "audit"].includes(first) || (first === "registry" && method === "POST")) return everywhere("admin");
  if (!["clusters", "gateways"].includes(first)) return null;
  const entry = mock[first].find((one) => one.id === second);
  if (!entry) return method === "GET" ? null : everywhere("admin");
  const has = first === "clusters" ? roleOn(mock.you, entry.id) : roleOnGateway(mock.you, entry);
  const writes = third === "call" && body.method !== "GET" && !/_search|_count|_simulate|_analyze|_msearch|dry_run=true/.test(body.path);
  const needs = method === "GET" || (third === "call" && !writes) ? "viewer" : third === "call" || third === "trial" ? "operator" : "admin";
  return reaches(has, needs) ? null : [needs, has, first === "clusters" ? "on this cluster" : "on all clusters of this gateway"];
}

/** The page of users, but for what is not `users`. */
export function usersOf(mock, method, name, body, refuse) {
  const all = () => [{ name: mock.user.name, ...mock.you, made_ms: mock.started - 40 * 86_400_000, seen_ms: Date.now() }, ...mock.users];
  if (method === "GET") return { users: all().sort((a, b) => (a.name < b.name ? -1 : 1)) };
  if (method === "POST") {
    if (all().some((one) => one.name === body.name)) refuse(409, "taken", `there is another one by the name \`${body.name}\``);
    mock.users.push({ name: body.name, role: body.role, clusters: body.clusters, made_ms: Date.now(), seen_ms: null });
    mock.note("add user", body.name, { after: { role: body.role, clusters: body.clusters } });
    return {};
  }
  const mine = name === mock.user.name;
  const last = mine && !mock.users.some((one) => one.role === "admin");
  if (last && (method === "DELETE" || (body.roles && body.roles.role !== "admin"))) refuse(409, "last_admin", "this is the last user with the role admin for everything");
  const found = mine ? mock.you : (mock.users.find((one) => one.name === name) ?? refuse(404, "not_found", "there is none with this id"));
  if (method === "DELETE") mock.users = mock.users.filter((one) => one !== found);
  else {
    const words = ({ role, clusters }) => JSON.stringify([role, ...Object.entries(clusters).sort()]);
    if (body.was && words(body.was) !== words(found)) refuse(409, "roles_changed", "somebody else has changed the roles of this user meanwhile");
    mock.passwords.push([name, body.password ?? null]);
    Object.assign(found, body.roles);
  }
  return {};
}
