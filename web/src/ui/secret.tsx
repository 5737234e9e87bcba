// Fields of forms that lead to another server: a secret that is never shown again, and how TLS is verified.
import { t } from "../strings.ts";
import { Button } from "./bits.tsx";
import { Area, Check, Text } from "./field.tsx";

const r = t.registry;

/** A given field is set, an absent one is kept, and null removes it. */
export type Secret = string | null | undefined;

interface SecretProps {
  label: string;
  help?: string;
  stored: boolean;
  value: Secret;
  onValue: (value: Secret) => void;
  /** Several lines, of which the first begins like this. */
  lines?: string;
}

export function SecretField({ label, help, stored, value, onValue, lines }: SecretProps) {
  const kept = stored && value === undefined;
  const shared = { label, help: kept ? r.keep : help, value: value ?? "", onValue: (text: string) => onValue(text === "" && stored ? undefined : text) };
  return (
    <div class="secret">
      {lines === undefined ? (
        <Text {...shared} type="password" autocomplete="off" placeholder={kept ? "••••••••" : ""} />
      ) : (
        <Area {...shared} rows={3} class="mono" autocomplete="off" placeholder={kept ? "••••••••" : lines} />
      )}
      {kept ? (
        <Button look="quiet" onClick={() => onValue(null)}>
          {r.remove}
        </Button>
      ) : null}
    </div>
  );
}

export function Tls({ ca, setCa, verify, setVerify }: { ca: string; setCa: (v: string) => void; verify: boolean; setVerify: (v: boolean) => void }) {
  return (
    <>
      <Check label={r.verify} checked={verify} onValue={setVerify} />
      <Area label={r.ca} help={r.caHelp} value={ca} onValue={setCa} rows={3} class="mono" placeholder="-----BEGIN CERTIFICATE-----" />
    </>
  );
}
