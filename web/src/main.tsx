import "./css/base.css";
import "./css/parts.css";
import "./css/pages.css";
import { render } from "preact";
import { startRouter } from "./router.ts";
import { Shell } from "./shell.tsx";
import { askSession } from "./state.ts";

startRouter();
render(<Shell />, document.getElementById("app")!);
void askSession();
