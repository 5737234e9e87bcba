// The records of a queue as they are stored, read without altering anything. The page never says just "none":
// it says how far it has looked.
import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort, reason } from "../api.ts";
import { bytes, dateTime, exact, visible } from "../format.ts";
import { ask, pathOf, traceLink, type Queue } from "../gateway_call.ts";
import { requery, route } from "../router.ts";
import { t } from "../strings.ts";
import { Button, Trouble } from "../ui/bits.tsx";
import { Text } from "../ui/field.tsx";
import { Heads } from "../ui/heads.tsx";

const r = t.records;
/** Number of records shown at once, and bytes of each that are searched. */
const SHOWN = 50;
const TEXT_BYTES = 64 << 10;

interface Part {
  readonly lane: number;
  readonly documents: number;
  readonly bytes: number;
  readonly damaged: boolean;
  readonly text: string;
  readonly cut: boolean;
}
interface Record_ {
  readonly position: number;
  readonly bytes: number;
  readonly documents: number;
  readonly time_ms: number;
  readonly groups: readonly Part[];
}
interface Answer {
  readonly records: readonly Record_[];
  readonly next: number | null;
}
interface Found {
  readonly at: "running" | "stopped" | "full" | "end";
  readonly records: readonly Record_[];
  readonly from: number;
  /** The position up to which records were searched. */
  readonly to: number;
  readonly looked: number;
  readonly cut: number;
}

export function Records({ id, name, queue }: { id: string; name: string; queue: Queue }) {
  const q = route.value.query;
  const [lane, setLane] = useState(q.get("lane") ?? "");
  const [from, setFrom] = useState(q.get("from") ?? "");
  const [word, setWord] = useState(q.get("text") ?? "");
  const [found, set] = useState<Found | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const control = useRef<AbortController | null>(null);
  useEffect(() => {
    void look(Number(q.get("from") ?? 0));
    return () => control.current?.abort();
  }, []);
  const look = async (begin: number) => {
    control.current?.abort();
    const mine = (control.current = new AbortController());
    const records: Record_[] = [];
    let [at, looked, cut] = [begin, 0, 0];
    setProblem(null);
    const say = (how: Found["at"]) => set({ at: how, records: [...records], from: Math.max(begin, queue.topic ? begin : queue.start), to: at, looked, cut });
    say("running");
    try {
      for (;;) {
        const path = pathOf(["queue", name, "records"], { lane: lane.trim(), from: at, limit: SHOWN, text_bytes: TEXT_BYTES });
        const told = await ask<Answer>(id, { method: "GET", path }, mine.signal);
        for (const one of told.records) {
          looked++;
          if (word && one.groups.some((part) => part.cut)) cut++;
          if (!word || one.groups.some((part) => part.text.includes(word))) records.push(one);
        }
        at = told.next ?? Math.max(at, queue.end);
        if (told.next === null) return say("end");
        if (records.length >= SHOWN) return say("full");
        say("running");
      }
    } catch (error) {
      if (isAbort(error)) return;
      setProblem(reason(error));
      say("stopped");
    }
  };
  const go = () => {
    requery({ lane, from, text: word });
    void look(Number(from || 0));
  };
  const c = r.columns;
  return (
    <section class="panel letters" aria-label={t.nav.records}>
      <form
        class="panel-head"
        onSubmit={(e) => {
          e.preventDefault();
          go();
        }}
      >
        <Text label={r.text} value={word} onValue={setWord} autocomplete="off" />
        <Text label={c.lane} value={lane} onValue={setLane} autocomplete="off" />
        <Text label={r.from} value={from} onValue={setFrom} autocomplete="off" />
        <Button type="submit" look="primary">
          {r.look}
        </Button>
        {found?.at === "running" ? (
          <Button icon="stop" onClick={() => (control.current?.abort(), set({ ...found, at: "stopped" }))}>
            {r.stop}
          </Button>
        ) : null}
        {found?.at === "full" || (found?.at === "stopped" && !problem) ? <Button onClick={() => void look(found.to)}>{r.on}</Button> : null}
      </form>
      {problem ? <Trouble text={problem} onRetry={go} /> : null}
      {found ? (
        <p class="sub searched" role="status">
          {found.at === "running" ? r.running : ""} {queue.topic ? r.looked(exact(found.looked)) : r.searched(bytes(Math.max(0, found.to - found.from)), bytes(Math.max(0, queue.end - queue.start)), exact(found.looked))}{" "}
          {r.found(exact(found.records.length))} {found.cut ? r.cut(exact(found.cut), bytes(TEXT_BYTES)) : ""}
        </p>
      ) : null}
      {found?.records.length ? (
        <table class="grid rows">
          <Heads of={[c.position, c.time, c.lanes, c.docs, c.bytes, c.text]} />
          <tbody>
            {found.records.slice(0, SHOWN * 2).map((one) => (
              <tr key={one.position} data-row>
                <th scope="row" class="num" data-label={c.position}>
                  {one.position}
                </th>
                <td class="num nowrap" data-label={c.time}>
                  {dateTime(one.time_ms)}
                </td>
                <td data-label={c.lanes}>{one.groups.slice(0, 20).map((part) => part.lane).join(", ")}</td>
                <td data-label={c.docs}>{exact(one.documents)}</td>
                <td data-label={c.bytes}>{bytes(one.bytes)}</td>
                <td data-label={c.text}>
                  <details>
                    <summary>
                      <bdi>{visible(around(one, word))}</bdi>
                    </summary>
                    <Where id={id} record={one} word={word} />
                    <pre tabIndex={0}>{one.groups.map((part) => (part.damaged ? `${r.damaged}\n` : part.text.slice(0, 4000))).join("")}</pre>
                  </details>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : null}
    </section>
  );
}

/** The link to the document that was searched for, or else to the record's first one. */
function Where({ id, record, word }: { id: string; record: Record_; word: string }) {
  const lines = record.groups.flatMap((part) => part.text.split("\n"));
  const at = word ? lines.findIndex((line) => line.includes(word)) : 0;
  const to = [lines[at], lines[at - 1]].map((line) => traceLink(id, parsed(line))).find((link) => link !== null);
  return to ? <a href={to}>{t.trace.where}</a> : null;
}

function parsed(line: string | undefined): unknown {
  try {
    return JSON.parse(line ?? "");
  } catch {
    return null;
  }
}

/** The text around the word, or the beginning. */
function around(record: Record_, word: string): string {
  const part = (word ? record.groups.find((one) => one.text.includes(word)) : undefined) ?? record.groups[0];
  if (!part || part.damaged) return r.damaged;
  const at = word ? Math.max(0, part.text.indexOf(word) - 30) : 0;
  return part.text.slice(at, at + 90).replaceAll("\n", " ");
}
