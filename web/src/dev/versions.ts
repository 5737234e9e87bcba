// Which calls a server has, by its flavour and version, out of the three specifications that there are. Pure.
import type { Spec } from "./suggest.ts";

export type SpecName = "elasticsearch" | "elasticsearch-7" | "opensearch";

/** What is needed for a server, the specification that it is nearest to first. */
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

/** Families that came with Elasticsearch 8 or later; the others that 7's open part lacks are of its extensions, which 7 had. */
const SINCE_8 = new Set("_application _connector _create_from _health_report _inference _info _lifecycle _project _project_routing _query _query_rules _streams _synonyms".split(" "));

/** The published specification of 7 has its open part alone. */
function withExtensions(seven: Spec, newest: Spec): Spec {
  const known = familiesOf(seven);
  const more = newest.calls.filter(([path]) => !known.has(family(path)) && !SINCE_8.has(family(path)));
  const shift = seven.lists.length;
  return { ...seven, lists: [...seven.lists, ...newest.lists], calls: [...seven.calls, ...more.map(([path, methods, list]) => [path, methods, list + shift] as const)] };
}

/** Families that OpenSearch 1 did not have yet. */
const SINCE_OPENSEARCH_2 = new Set("_insights _list _ltr _remotestore _wlm".split(" "));

/** OpenSearch 1 began as Elasticsearch 7.10.2: of the families that this had, it has this one's calls. */
function asOfTheFork(newest: Spec, seven: Spec): Spec {
  const known = familiesOf(seven);
  const paths = new Set(seven.calls.map(([path]) => path));
  return { ...newest, calls: newest.calls.filter(([path]) => (known.has(family(path)) ? paths.has(path) : !SINCE_OPENSEARCH_2.has(family(path)))) };
}
