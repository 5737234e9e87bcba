// Converts requests to curl commands and back.
import { linewise, type Request } from "./parser.ts";

/** Quotes a word for a POSIX shell. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The command for a shell; it leaves the password for the user to enter. */
export function toCurl(request: Pick<Request, "method" | "path" | "body">, endpoint: string, user?: string | null): string {
  const words = ["curl"];
  if (request.method === "HEAD") words.push("--head");
  else if (request.method !== "GET" || request.body) words.push("-X", request.method);
  if (user) words.push("--user", quoted(user));
  words.push(quoted(endpoint.replace(/\/$/, "") + request.path));
  if (request.body) {
    const type = linewise(request.path) ? "application/x-ndjson" : "application/json";
    words.push("-H", quoted(`Content-Type: ${type}`), "--data-binary", quoted(request.body));
  }
  return words.join(" ");
}

/** The request of a curl command, or null if the text is no curl command. Host and password are dropped. */
export function fromCurl(text: string): Pick<Request, "method" | "path" | "body"> | null {
  const words = shellWords(text.trim());
  if (!words || !/(^|\/)curl$/.test(words[0] ?? "")) return null;
  let method = "";
  let url = "";
  const data: string[] = [];
  for (let i = 1; i < words.length; i++) {
    let word = words[i]!;
    let value: string | null = null;
    const long = /^(--[\w-]+)=([\s\S]*)$/.exec(word);
    const glued = /^-([XdHu])([\s\S]+)$/.exec(word);
    if (long) [word, value] = [long[1]!, long[2]!];
    else if (glued) [word, value] = [`-${glued[1]!}`, glued[2]!];
    const next = () => value ?? words[++i] ?? "";
    if (word === "-X" || word === "--request") method = next().toUpperCase();
    else if (/^(-d|--data(-raw|-binary|-ascii)?|--json)$/.test(word)) data.push(next());
    else if (word === "-I" || word === "--head") method = "HEAD";
    else if (WITH_VALUE.has(word)) next();
    else if (!word.startsWith("-")) url ||= word;
    else if (word === "--url") url = next();
  }
  if (!url) return null;
  const path = url.replace(/^[a-z]+:\/\/[^/?]*/i, (host) => (host === url ? "/" : ""));
  const body = data.join("&");
  return {
    method: method || (body ? "POST" : "GET"),
    path: path.startsWith("/") ? path : path.includes("/") ? path.slice(path.indexOf("/")) : "/",
    body,
  };
}

const WITH_VALUE = new Set(["-H", "--header", "-u", "--user", "--cacert", "--cert", "--key", "-o", "--output", "-m", "--max-time", "-A", "-e", "--connect-timeout", "--resolve", "-x", "--proxy"]);

/** Splits a text into words as a POSIX shell does, with quotes, escapes and continued lines. Null if a quote stays open. */
function shellWords(text: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === "'") {
      const end = text.indexOf("'", i + 1);
      if (end < 0) return null;
      word = (word ?? "") + text.slice(i + 1, end);
      i = end;
    } else if (c === '"') {
      word ??= "";
      for (i++; text[i] !== '"'; i++) {
        if (i >= text.length) return null;
        if (text[i] === "\\" && /["\\$`\n]/.test(text[i + 1] ?? "")) i++;
        word += text[i];
      }
    } else if (c === "\\") {
      i++;
      if (text[i] !== "\n") word = (word ?? "") + (text[i] ?? "");
    } else if (/\s/.test(c)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + c;
  }
  if (word !== null) words.push(word);
  return words;
}

/** A request as it is written in the editor. */
export function toText(request: Pick<Request, "method" | "path" | "body">): string {
  return `${request.method} ${request.path}\n${request.body ? `${request.body.replace(/\n$/, "")}\n` : ""}`;
}
