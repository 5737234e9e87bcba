// Polls: asks again and again, one request at a time, and not while the page is hidden.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { byItself, isAbort, reason } from "../api.ts";

export interface Polled<T> {
  readonly data: T | null;
  /** Why the last attempt failed; the data before it is kept. */
  readonly problem: string | null;
  /** When the data came. */
  readonly at: number;
  readonly again: () => void;
}

/** `every` 0 asks once. After failures the pauses grow, up to sixteen times as long. */
export function usePoll<T>(ask: (signal: AbortSignal) => Promise<T>, every: number | ((data: T) => number), deps: readonly unknown[]): Polled<T> {
  const [state, set] = useState<Omit<Polled<T>, "again">>({ data: null, problem: null, at: 0 });
  const kick = useRef<() => void>(() => undefined);
  useEffect(() => {
    set({ data: null, problem: null, at: 0 });
    let timer = 0;
    let failures = 0;
    let underWay = false;
    const abort = new AbortController();
    const round = async (isAgain: boolean) => {
      clearTimeout(timer);
      if (underWay || abort.signal.aborted) return;
      underWay = true;
      // Only what a user asks for keeps the session; an open page does not.
      if (isAgain) byItself.add(abort.signal);
      else byItself.delete(abort.signal);
      let pause = 1000;
      try {
        const data = await ask(abort.signal);
        if (abort.signal.aborted) return;
        failures = 0;
        pause = typeof every === "function" ? every(data) : every;
        set({ data, problem: null, at: Date.now() });
      } catch (error) {
        if (isAbort(error) || abort.signal.aborted) return;
        failures++;
        pause = every === 0 ? 0 : 1000 * 2 ** Math.min(4, failures);
        set((old) => ({ ...old, problem: reason(error) }));
      } finally {
        underWay = false;
      }
      if (pause > 0 && !document.hidden) timer = window.setTimeout(() => void round(true), pause);
    };
    kick.current = () => void round(false);
    const seen = () => void (document.hidden || every === 0 || round(true));
    document.addEventListener("visibilitychange", seen);
    void round(false);
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, deps);
  return { ...state, again: useCallback(() => kick.current(), []) };
}
