// Fields of forms that lead to another server: a secret that is never shown again, and how TLS is verified.
import { t } from "../strings.ts";
import { Button } from "./bits.tsx";
import { Area, Check, Text } from "./field.tsx";

const r = t.registry;

/** A given field is set, an absent one is kept, and null removes it. */
export type Secret = string | null | undefined;

export function SecretField({ label, help, stored, value, onValue }: { label: string; help?: string; stored: boolean; value: Secret; onValue: (value: Secret) => void }) {
  const kept = stored && value === undefined;
  return (
    <div class="secret">
      <Text label={label} help={kept ? r.keep : help} type="password" autocomplete="off" placeholder={kept ? "••••••••" : ""} value={value ?? ""} onValue={(text) => onValue(text === "" && stored ? undefined : text)} />
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
