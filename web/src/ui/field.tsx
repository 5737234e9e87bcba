// Fields of forms: label, control, help and problem belong together, for screen readers too.
import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

interface Around {
  label: string;
  help?: ComponentChildren;
  problem?: string | null | undefined;
}

function describe(id: string, { help, problem }: Around) {
  const ids = [help ? `${id}-h` : "", problem ? `${id}-p` : ""].filter(Boolean).join(" ");
  return { "aria-describedby": ids || undefined, "aria-invalid": problem ? ("true" as const) : undefined };
}

function Wrap({ id, label, help, problem, children }: Around & { id: string; children: ComponentChildren }) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children}
      {help ? (
        <p class="help" id={`${id}-h`}>
          {help}
        </p>
      ) : null}
      {problem ? (
        <p class="problem" id={`${id}-p`}>
          {problem}
        </p>
      ) : null}
    </div>
  );
}

type Value = { value: string; onValue: (value: string) => void };

export function Text(props: Around & Value & Omit<JSX.InputHTMLAttributes<HTMLInputElement>, "label" | "value">) {
  const id = useId();
  const { label, help, problem, value, onValue, ...rest } = props;
  return (
    <Wrap id={id} {...{ label, help, problem }}>
      <input id={id} value={value} onInput={(e) => onValue(e.currentTarget.value)} {...describe(id, props)} {...rest} />
    </Wrap>
  );
}

export function Area(props: Around & Value & Omit<JSX.TextareaHTMLAttributes<HTMLTextAreaElement>, "label" | "value">) {
  const id = useId();
  const { label, help, problem, value, onValue, ...rest } = props;
  return (
    <Wrap id={id} {...{ label, help, problem }}>
      <textarea id={id} value={value} spellcheck={false} onInput={(e) => onValue(e.currentTarget.value)} {...describe(id, props)} {...rest} />
    </Wrap>
  );
}

export function Choice(props: Around & Value & { options: readonly (readonly [string, string])[]; disabled?: boolean }) {
  const id = useId();
  const { label, help, problem, value, onValue, options, disabled } = props;
  return (
    <Wrap id={id} {...{ label, help, problem }}>
      <select id={id} value={value} disabled={disabled} onChange={(e) => onValue(e.currentTarget.value)} {...describe(id, props)}>
        {options.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </Wrap>
  );
}

export function Check({ label, help, checked, onValue, disabled }: Around & { checked: boolean; onValue: (on: boolean) => void; disabled?: boolean }) {
  const id = useId();
  return (
    <div class="field check">
      <input id={id} type="checkbox" checked={checked} disabled={disabled} onChange={(e) => onValue(e.currentTarget.checked)} aria-describedby={help ? `${id}-h` : undefined} />
      <label for={id}>{label}</label>
      {help ? (
        <p class="help" id={`${id}-h`}>
          {help}
        </p>
      ) : null}
    </div>
  );
}
