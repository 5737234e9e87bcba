// The problems of a cluster or a gateway, in its own words, for each page about it.
import { heardAt, now, overview } from "../live.ts";
import { span, visible } from "../format.ts";
import { t } from "../strings.ts";
import type { Row } from "../types.ts";

export const rowOf = (kind: Row["kind"], id: string): Row | undefined => overview.value?.rows.find((row) => row.kind === kind && row.id === id);

/** The time since the last answer; null if there never was one. */
export const ageOf = (row: Row): number | null => (row.seen_ms_ago === null ? null : row.seen_ms_ago + Math.max(0, now.value - heardAt.value));

export function Whys({ row, aged }: { row: Row | undefined; aged?: boolean }) {
  if (!row?.why.length) return null;
  const age = ageOf(row);
  return (
    <ul class={`why panel-note ${row.state}`}>
      {row.why.map((why) => (
        <li key={why}>
          <bdi>{visible(why)}</bdi>
        </li>
      ))}
      {aged && (age === null || age > 5000) ? <li>{age === null ? t.cluster.neverSeen : t.cluster.seen(span(age))}</li> : null}
    </ul>
  );
}

/** For pages that ask the cluster themselves, and may wait long for an answer. */
export function ClusterWhys({ id }: { id: string | undefined }) {
  return <Whys row={id ? rowOf("cluster", id) : undefined} aged />;
}
