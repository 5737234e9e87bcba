// The frame of a form whose values can be tested before they are saved: the fields, the buttons below them, and
// a panel beside them.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { reason } from "../api.ts";
import { t } from "../strings.ts";
import { Button, Header, Trouble } from "./bits.tsx";
import { Ask } from "./dialog.tsx";

/** A button, and what it does. A failure is shown in the form. */
interface Action {
  label: (busy: boolean) => string;
  run: () => Promise<void>;
}

interface Props {
  title: string;
  /** The page that the form was opened from. */
  back: string;
  /** Says what is wrong with the values; nothing is sent before that is put right. */
  check: () => string | null;
  test: Action;
  save: Action;
  /** Removes what is stored, after a question; `null` if nothing is. */
  remove: { label: string; title: string; text: string; run: () => Promise<void> } | null;
  /** What stands between the fields and the buttons. */
  result?: ComponentChildren;
  aside: (testing: boolean) => ComponentChildren;
  children: ComponentChildren;
}

export function FormPage({ title, back, check, test, save, remove, result, aside, children }: Props) {
  const [busy, setBusy] = useState<"" | "test" | "save">("");
  const [problem, setProblem] = useState<string | null>(null);
  const [asking, ask] = useState(false);
  const failing = async (work: () => Promise<void>) => {
    try {
      await work();
    } catch (error) {
      setProblem(reason(error));
    }
  };
  const doing = async (what: "test" | "save", work: () => Promise<void>) => {
    if (busy) return;
    const wrong = check();
    setProblem(wrong);
    if (wrong) return;
    setBusy(what);
    await failing(work);
    setBusy("");
  };
  return (
    <>
      <Header title={title}>
        {remove ? (
          <Button look="danger" onClick={() => ask(true)}>
            {remove.label}
          </Button>
        ) : null}
      </Header>
      <div class="form-page">
        <form
          class="panel form"
          noValidate
          onSubmit={(e) => {
            e.preventDefault();
            void doing("save", save.run);
          }}
        >
          {children}
          {problem ? <Trouble text={problem} /> : null}
          {result}
          <div class="actions">
            <Button type="submit" look="primary" busy={busy === "save"}>
              {save.label(busy === "save")}
            </Button>
            <Button onClick={() => void doing("test", test.run)} busy={busy === "test"}>
              {test.label(busy === "test")}
            </Button>
            <a class="button quiet" href={back}>
              {t.registry.cancel}
            </a>
          </div>
        </form>
        {aside(busy === "test")}
      </div>
      {remove && asking ? (
        <Ask
          title={remove.title}
          text={remove.text}
          yes={remove.label}
          onYes={() => {
            ask(false);
            void failing(remove.run);
          }}
          onClose={() => ask(false)}
        />
      ) : null}
    </>
  );
}
