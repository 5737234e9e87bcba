// Asks a cluster for its templates of both kinds.
import { callJson } from "./call.tsx";
import { t } from "./strings.ts";
import { dict, readTemplates, type Dict, type Json, type Template } from "./templates.ts";

export interface AllTemplates {
  readonly templates: readonly Template[];
  readonly components: ReadonlyMap<string, Dict>;
  /** If a part could not be read, the others are still shown. */
  readonly problems: readonly string[];
}

export async function loadTemplates(id: string, signal: AbortSignal): Promise<AllTemplates> {
  const get = (path: string) => callJson<Json>(id, { method: "GET", path }, signal);
  const [composable, legacy, components] = await Promise.allSettled([get("/_index_template"), get("/_template"), get("/_component_template")]);
  signal.throwIfAborted();
  if (composable.status === "rejected" && legacy.status === "rejected") throw composable.reason;
  const value = (r: PromiseSettledResult<Json>): Json => (r.status === "fulfilled" ? r.value : null);
  const why = (r: PromiseSettledResult<Json>, what: string) => (r.status === "rejected" ? [t.templates.partly(what, String((r.reason as Error).message))] : []);
  const list = dict(value(components))["component_templates"];
  return {
    templates: readTemplates(value(composable), value(legacy)),
    components: new Map((Array.isArray(list) ? list : []).map((c) => [String(dict(c)["name"] ?? ""), dict(dict(c)["component_template"])])),
    problems: [...why(composable, "_index_template"), ...why(legacy, "_template"), ...why(components, "_component_template")],
  };
}
