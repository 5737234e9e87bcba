// Who is here, and what the roles allow. The server decides; the page does not offer what it would refuse.
import { signal } from "@preact/signals";

/** Each may do what those before it may. */
export const ROLES = ["none", "viewer", "operator", "admin"] as const;
export type Role = (typeof ROLES)[number];

export interface You {
  readonly name: string;
  /** For the console itself, and for each cluster that is not among `clusters`. */
  readonly role: Role;
  /** By the cluster's id. */
  readonly clusters: Readonly<Record<string, Role>>;
  /** Whether the user logs in at the OpenID provider, which has the password and gives the roles. */
  readonly oidc?: boolean;
}

/** Told with the login and with each overview: an admin may change roles at any time. */
export const you = signal<You | null>(null);

export function tellYou(told: You): void {
  if (JSON.stringify(told) !== JSON.stringify(you.peek())) you.value = told;
}

export const reaches = (has: Role, needs: Role): boolean => ROLES.indexOf(has) >= ROLES.indexOf(needs);

export const roleEverywhere = (): Role => you.value?.role ?? "none";
export const roleOn = (cluster: string): Role => you.value?.clusters[cluster] ?? roleEverywhere();

/** The lowest of those on its clusters: what acts on a gateway acts on all of them. A cluster that was removed is for admins only. */
export function roleOnGateway(gateway: { readonly clusters: readonly { readonly cluster_id: string | null }[] } | undefined): Role {
  const linked = gateway?.clusters.map((one) => (one.cluster_id === null ? (roleEverywhere() === "admin" ? "admin" : "none") : roleOn(one.cluster_id))) ?? [];
  return linked.length ? ROLES[Math.min(...linked.map((role) => ROLES.indexOf(role)))]! : roleEverywhere();
}
