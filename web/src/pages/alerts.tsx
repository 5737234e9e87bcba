// The alerts: which there are, since when, and which have ended; silences; and the webhook that tells of them.
import { useState } from "preact/hooks";
import { api, reason } from "../api.ts";
import { dateTime, span, visible } from "../format.ts";
import { serverNow } from "../live.ts";
import { reaches, roleEverywhere, roleOn, roleOnGateway } from "../roles.ts";
import { link, route } from "../router.ts";
import { gatewayOf } from "../state.ts";
import { t } from "../strings.ts";
import type { Alert, Alerts as Told, EndedAlert } from "../types.ts";
import { ago, Button, Empty, Header, Loading, Name, Note, StateBadge, Tag, Trouble } from "../ui/bits.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Choice, Text } from "../ui/field.tsx";
import { Forbidden } from "../ui/forbidden.tsx";
import { Heads } from "../ui/heads.tsx";
import { usePoll } from "../ui/poll.ts";
import { tell } from "../ui/toast.tsx";
import { WebhookPage } from "./webhook.tsx";

const a = t.alerts;

export function Alerts() {
  if (route.value.parts[1] !== "webhook") return <List />;
  return reaches(roleEverywhere(), "admin") ? <WebhookPage /> : <Forbidden needs="admin" />;
}

function List() {
  const { data, problem, again } = usePoll((signal) => api<Told>("alerts", { signal }), 2000, []);
  const [silencing, silence] = useState<Alert | null>(null);
  const admin = reaches(roleEverywhere(), "admin");
  return (
    <>
      <Header title={a.title}>
        {admin ? (
          <a class="button" href={link(["alerts", "webhook"])}>
            {a.webhook.title}
          </a>
        ) : null}
      </Header>
      {problem ? <Trouble text={problem} onRetry={again} /> : null}
      {data ? (
        <div class={problem ? "stale" : undefined}>
          {data.has_webhook ? null : <Note kind="info">{admin ? a.noWebhook : a.noWebhookText}</Note>}
          {data.active.length ? <Active alerts={data.active} onSilence={silence} onEnd={(one) => void end(one, again)} /> : <Empty title={a.none} text={a.noneText} />}
          <Ended alerts={data.ended} />
          <Rules rules={data.rules} />
        </div>
      ) : problem ? null : (
        <Loading />
      )}
      {silencing ? <Silence alert={silencing} onDone={again} onClose={() => silence(null)} /> : null}
    </>
  );
}

const mayAct = (one: Alert): boolean => reaches(one.kind === "cluster" ? roleOn(one.id) : roleOnGateway(gatewayOf(one.id)), "operator");

const body = ({ rule, kind, id }: Alert, minutes: number, why: string) => ({ rule, kind, id, minutes, reason: why });

async function end(one: Alert, again: () => void): Promise<void> {
  try {
    await api("alerts/_silence", { body: body(one, 0, "") });
    tell(a.unsilenced);
    again();
  } catch (error) {
    tell(reason(error), "bad");
  }
}

function Target({ alert }: { alert: Alert | EndedAlert }) {
  return (
    <a href={link([alert.kind === "cluster" ? "c" : "g", alert.id])}>
      <Name value={alert.name} />
    </a>
  );
}

function Active({ alerts, onSilence, onEnd }: { alerts: readonly Alert[]; onSilence: (one: Alert) => void; onEnd: (one: Alert) => void }) {
  const c = a.columns;
  return (
    <section class="panel">
      <table class="grid rows alerts">
        <caption>
          <h2>{a.active}</h2>
        </caption>
        <Heads of={[c.severity, c.rule, c.target, c.words, c.since, c.silence]} />
        <tbody>
          {alerts.map((one) => (
            <tr key={`${one.rule} ${one.kind} ${one.id} ${one.part}`} data-row>
              <td data-label={c.severity}>
                <StateBadge state={one.severity} />
              </td>
              <th scope="row" data-label={c.rule}>
                {a.rules[one.rule] ?? visible(one.rule)}
              </th>
              <td data-label={c.target} class="target">
                <Target alert={one} />
              </td>
              <td data-label={c.words} class="words">
                <bdi>{visible(one.words)}</bdi>
              </td>
              <td data-label={c.since} class="num nowrap">
                <time dateTime={new Date(one.since_ms).toISOString()} title={dateTime(one.since_ms)}>
                  {ago(Math.max(0, serverNow.value - one.since_ms))}
                </time>
              </td>
              <td data-label={c.silence}>
                {one.silence ? (
                  <span class="silenced">
                    <Tag icon="clock">{a.silenced(span(one.silence.until_ms - serverNow.value))}</Tag>
                    <span class="sub">
                      <bdi>{a.by(visible(one.silence.user), visible(one.silence.reason))}</bdi>
                    </span>
                    {mayAct(one) ? (
                      <Button look="quiet" onClick={() => onEnd(one)} aria-label={`${a.endSilence}: ${a.rules[one.rule] ?? ""} ${visible(one.name)}`}>
                        {a.endSilence}
                      </Button>
                    ) : null}
                  </span>
                ) : mayAct(one) ? (
                  <Button onClick={() => onSilence(one)} aria-label={`${a.silence}: ${a.rules[one.rule] ?? ""} ${visible(one.name)}`}>
                    {a.silence}
                  </Button>
                ) : (
                  <span class="none">{t.none}</span>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Ended({ alerts }: { alerts: readonly EndedAlert[] }) {
  const c = a.columns;
  if (!alerts.length) return null;
  return (
    <section class="panel">
      <table class="grid rows alerts">
        <caption>
          <h2>{a.ended}</h2>
        </caption>
        <Heads of={[c.rule, c.target, c.words, c.began, c.ended, c.lasted]} />
        <tbody>
          {alerts.map((one, i) => (
            <tr key={`${i} ${one.since_ms} ${one.rule} ${one.id} ${one.part}`} data-row>
              <th scope="row" data-label={c.rule}>
                {a.rules[one.rule] ?? visible(one.rule)}
              </th>
              <td data-label={c.target} class="target">
                <Target alert={one} />
              </td>
              <td data-label={c.words} class="words">
                <bdi>{visible(one.words)}</bdi>
              </td>
              <td data-label={c.began} class="num nowrap">
                {dateTime(one.since_ms)}
              </td>
              <td data-label={c.ended} class="num nowrap">
                {dateTime(one.resolved_ms)}
              </td>
              <td data-label={c.lasted} class="num nowrap">
                {span(one.resolved_ms - one.since_ms)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Rules({ rules }: { rules: Told["rules"] }) {
  const c = a.columns;
  return (
    <details class="panel rules">
      <summary>{a.allRules(rules.length)}</summary>
      <table class="grid">
        <Heads of={[c.severity, c.rule, c.meaning, c.hold]} />
        <tbody>
          {rules.map((one) => (
            <tr key={one.rule}>
              <td>
                <StateBadge state={one.severity} />
              </td>
              <th scope="row">{a.rules[one.rule] ?? visible(one.rule)}</th>
              <td>{visible(one.meaning)}</td>
              <td class="num nowrap">{one.hold_s ? span(one.hold_s * 1000) : a.atOnce}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

const TIMES = [60, 8 * 60, 24 * 60, 7 * 24 * 60];

function Silence({ alert, onDone, onClose }: { alert: Alert; onDone: () => void; onClose: () => void }) {
  const [minutes, setMinutes] = useState(TIMES[0]!);
  const [why, setWhy] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const save = async (event: Event) => {
    event.preventDefault();
    if (!why.trim()) return setProblem(a.needReason);
    try {
      await api("alerts/_silence", { body: body(alert, minutes, why) });
      onDone();
      onClose();
    } catch (error) {
      setProblem(reason(error));
    }
  };
  return (
    <Dialog title={a.silenceTitle(a.rules[alert.rule] ?? alert.rule, visible(alert.name))} onClose={onClose}>
      <form noValidate onSubmit={save}>
        <p>{a.silenceText}</p>
        <Choice label={a.time} value={String(minutes)} onValue={(v) => setMinutes(Number(v))} options={TIMES.map((m) => [String(m), span(m * 60_000)] as const)} />
        <Text label={t.confirm.reason} value={why} onValue={(text) => (setWhy(text), setProblem(null))} autocomplete="off" required problem={problem} />
        <div class="actions">
          <Button onClick={onClose}>{t.confirm.cancel}</Button>
          <Button type="submit" look="primary">
            {a.silence}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
