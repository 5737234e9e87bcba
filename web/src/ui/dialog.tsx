// A modal dialog based on the browser's own element: it keeps the focus, Escape closes it, and the focus then
// returns.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { t } from "../strings.ts";
import { Button } from "./bits.tsx";

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const at = document.activeElement;
    ref.current?.showModal();
    return () => {
      if (at instanceof HTMLElement) at.focus();
    };
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={onClose} onClick={(e) => e.target === ref.current && onClose()}>
      <div class="dialog">
        <header>
          <h2 id={id}>{title}</h2>
          <Button look="quiet" icon="close" aria-label={t.help.close} onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** Asks before something that cannot be undone. */
export function Ask(props: { title: string; text: string; yes: string; onYes: () => void; onClose: () => void }) {
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <p>{props.text}</p>
      <div class="actions">
        <Button onClick={props.onClose}>{t.confirm.cancel}</Button>
        <Button look="danger" onClick={props.onYes}>
          {props.yes}
        </Button>
      </div>
    </Dialog>
  );
}
