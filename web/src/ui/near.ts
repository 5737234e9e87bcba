// Whether an element is on the screen or within a screen of it. Drawings elsewhere would cost the browser as
// much, each time anything on the page changes, as those that people see.
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

type Tell = (near: boolean) => void;

const tells = new Map<Element, Tell>();
let observer: IntersectionObserver | undefined;

function watch(element: Element, tell: Tell): () => void {
  observer ??= new IntersectionObserver((seen) => seen.forEach((one) => tells.get(one.target)?.(one.isIntersecting)), { rootMargin: "100% 0%" });
  tells.set(element, tell);
  observer.observe(element);
  return () => {
    observer?.unobserve(element);
    tells.delete(element);
  };
}

export function useNear(of: RefObject<Element>): boolean {
  const [near, setNear] = useState(false);
  useEffect(() => (of.current ? watch(of.current, setNear) : undefined), [of]);
  return near;
}
