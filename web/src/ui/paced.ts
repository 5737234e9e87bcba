// Much is drawn a few at a time: on a slow machine, a hundred rows in one go keep keys and clicks waiting.
// How many are a few follows from the time that the last few took.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";

/** A turn that takes longer has fewer things next time, and one that takes a third of it has more. */
const TURN_MS = 36;

class Turns {
  private began = 0;
  private size = 10;
  /** Begins a turn, and returns how many things it has; `goes`: the last turn was just before. */
  next(goes: boolean): number {
    const took = performance.now() - this.began;
    if (goes && took > TURN_MS) this.size = Math.max(5, this.size >> 1);
    else if (goes && took < TURN_MS / 3) this.size = Math.min(1000, this.size << 1);
    this.began = performance.now();
    return this.size;
  }
}

/** Things that have changed, and are drawn soon. */
const changed = new Set<Paced>();
const updates = new Turns();
let goes = false;

const next = new MessageChannel();
next.port1.onmessage = () => {
  let left = updates.next(goes);
  goes = changed.size > 0;
  for (const one of changed) {
    if (!left--) break;
    changed.delete(one);
    one.forceUpdate();
  }
  if (goes) next.port2.postMessage(null);
};

/** Draws something at once, and what changes of it shortly afterwards: it has changed if `of` is another. */
export class Paced extends Component<{ of: unknown; draw: () => ComponentChildren }> {
  override shouldComponentUpdate(to: { of: unknown }): boolean {
    if (to.of !== this.props.of) {
      if (!changed.size && !goes) next.port2.postMessage(null);
      changed.add(this);
    }
    return false;
  }
  override componentWillUnmount(): void {
    changed.delete(this);
  }
  override render(): ComponentChildren {
    return this.props.draw();
  }
}

/** How many things the next turn of a first draw has, by what the last ones took. */
let portion = 10;
/** What the scripts, styles and layout of such a turn may take; to paint it takes as long again. */
const PORTION_MS = 20;

function tookPortion(ms: number): void {
  portion = Math.round(Math.min(1000, Math.max(5, portion * Math.min(2, Math.max(0.5, PORTION_MS / ms)))));
}

/**
 * Returns how many of `all` things are drawn: at first `some`, more with each turn, and then always all. If
 * there are fewer for a while, as a filter is typed, those that come back also come a few at a time.
 */
export function usePortion(all: number, some: number): number {
  const [, again] = useReducer((turns: number) => turns + 1, 0);
  const drawn = useRef(some);
  const began = useRef(0);
  drawn.current = Math.max(some, Math.min(drawn.current, all));
  useLayoutEffect(() => {
    if (!began.current) return;
    // Asked for its height, the page is laid out now, as it would be for the next frame.
    if (document.documentElement.offsetHeight) tookPortion(performance.now() - began.current);
    began.current = 0;
  });
  useEffect(() => {
    if (drawn.current >= all) return;
    const turn = setTimeout(() => {
      began.current = performance.now();
      drawn.current += portion;
      again(undefined);
    });
    return () => clearTimeout(turn);
  }, [drawn.current, all, some]);
  return Math.min(drawn.current, all);
}
