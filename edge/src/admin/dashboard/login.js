// The form for the token of an operator or reader.

import { setToken, tryToken } from "./api.js";
import { h, text, uid } from "./dom.js";

/** Asks for a token until one is valid, and resolves to true. `isRefused`: whether the last one was refused. */
export function login(isRefused) {
  return new Promise((resolve) => {
    const [title, field] = [uid("login"), uid("token")];
    const input = h("input", { id: field, type: "password", autocomplete: "current-password", required: true, spellcheck: "false", maxlength: "4096" });
    const refusal = h("p.bad-text", { role: "alert", hidden: !isRefused }, isRefused ? "This token is not valid." : null);
    let isTrying = false;
    const submit = async (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (isTrying || !/^[\x21-\x7e]+$/.test(token)) return;
      isTrying = true;
      const why = await tryToken(token).catch((error) => error.message);
      isTrying = false;
      refusal.hidden = !why;
      text(refusal, why);
      if (why) return;
      setToken(token);
      dialog.close();
      dialog.remove();
      resolve(true);
    };
    const dialog = h("dialog", { "aria-labelledby": title, class: "login" },
      h("form", { method: "dialog", onsubmit: submit },
      h("h2", { id: title }, "Log in to Sluice"),
      h("p", "This admin address needs a token: that of ", h("code", "token"), ", or one of ", h("code", "readers"), " or ", h("code", "operators"), " in ", h("code", "[admin]"), ". This tab keeps it until it is closed."),
      refusal,
      h("label", { for: field }, "Token"), input,
      h("div.buttons", h("button.primary", "Log in"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    // Browsers close a dialog at a further Escape, whatever the page says.
    dialog.addEventListener("close", () => { if (dialog.isConnected) dialog.showModal(); });
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
