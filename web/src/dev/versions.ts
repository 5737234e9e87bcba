// Selects a server's calls, by its flavour and version, from the three specifications. Pure.
import type { Spec } from "./suggest.ts";

export type SpecName = "elasticsearch" | "elasticsearch-7" | "opensearch";

/** The specifications needed for a server; the closest one comes first. */
export interface Wanted {
  readonly names: readonly SpecName[];
  readonly make: (specs: readonly Spec[]) => Spec;
}

export function wantedFor(flavour: string | null, version: string | null): Wanted {
  const major = Number.parseInt(version ?? "", 10);
  if (/elastic/i.test(flavour ?? "")) {
    if (major <= 7) return { names: ["elasticsearch-7", "elasticsearch"], make: ([seven, newest]) => withExtensions(seven!, newest!) };
    return { names: ["elasticsearch"], make: ([spec]) => spec! };
  }
  if (major === 1) return { names: ["opensearch", "elasticsearch-7"], make: ([newest, seven]) => asOfTheFork(newest!, seven!) };
  return { names: ["opensearch"], make: ([spec]) => spec! };
}

/** The part of a path that names the API: `_ilm` of `/_ilm/policy/{policy}`. */
const family = (path: string): string => path.split("/")[1] ?? "";
const familiesOf = (spec: Spec): Set<string> => new Set(spec.calls.map(([path]) => family(path)));

/** Families that came with Elasticsearch 8 or later. The other families that 7's open part lacks belong to its extensions. */
const SINCE_8 = new Set("_application _connector _create_from _health_report _inference _info _lifecycle _project _project_routing _query _query_rules _streams _synonyms".split(" "));

/** The published specification of 7 covers only its open part. */
function withExtensions(seven: Spec, newest: Spec): Spec {
  const known = familiesOf(seven);
  const more = newest.calls.filter(([path]) => !known.has(family(path)) && !SINCE_8.has(family(path)));
  const shift = seven.lists.length;
  return { ...seven, lists: [...seven.lists, ...newest.lists], calls: [...seven.calls, ...more.map(([path, methods, list]) => [path, methods, list + shift] as const)] };
}

/** Families that OpenSearch 1 did not have yet. */
const SINCE_OPENSEARCH_2 = new Set("_insights _list _ltr _remotestore _wlm".split(" "));

/** OpenSearch 1 began as Elasticsearch 7.10.2, and has the calls of that version in the families that both have. */
function asOfTheFork(newest: Spec, seven: Spec): Spec {
  const known = familiesOf(seven);
  const paths = new Set(seven.calls.map(([path]) => path));
  return { ...newest, calls: newest.calls.filter(([path]) => (known.has(family(path)) ? paths.has(path) : !SINCE_OPENSEARCH_2.has(family(path)))) };
}
