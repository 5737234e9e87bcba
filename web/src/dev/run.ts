// Runs requests one after the other, and lays out their answers.
import { call } from "../call.tsx";
import { latency } from "../format.ts";
import type { CallResult } from "../types.ts";
import { layOut } from "./layout.ts";
import { linewise, type Request } from "./parser.ts";

export interface Answer {
  readonly request: Request;
  readonly result: CallResult;
  readonly text: string;
}

export async function run(cluster: string, request: Request, signal: AbortSignal): Promise<Answer> {
  const type = linewise(request.path) ? "application/x-ndjson" : "application/json";
  const what = { method: request.method, path: request.path, ...(request.body ? { body: request.body, headers: { "content-type": type } } : {}) };
  const result = await call(cluster, what, signal);
  return { request, result, text: result.truncated ? result.body : await layOut(result.body, signal) };
}

/** All answers as one text; if there are several, a line with the request precedes each. The bar above names a single one's. */
export function together(answers: readonly Answer[]): string {
  if (answers.length === 1) return answers[0]!.text;
  return answers.map(({ request, result, text }) => `# ${request.method} ${request.path}  ${result.status}, ${latency(result.took_ms)}\n${text}`).join("\n\n");
}
