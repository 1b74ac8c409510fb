// The form for the token of an operator or reader.

import { setToken } from "./api.js";
import { h, uid } from "./dom.js";

/** Asks for a token, and resolves to whether one was given. `isRefused`: whether the last one was refused. */
export function login(isRefused) {
  return new Promise((resolve) => {
    const [title, field] = [uid("login"), uid("token")];
    const input = h("input", { id: field, type: "password", autocomplete: "current-password", required: true, spellcheck: "false", maxlength: "4096" });
    const dialog = h("dialog", { "aria-labelledby": title, class: "login" },
      h("form", { method: "dialog", onsubmit: (event) => {
        event.preventDefault();
        const token = input.value.trim();
        if (!/^[\x21-\x7e]+$/.test(token)) return;
        setToken(token);
        dialog.close();
        dialog.remove();
        resolve(true);
      } },
      h("h2", { id: title }, "Log in to Sluice"),
      h("p", null, "This admin address needs a token: that of ", h("code", null, "token"), ", or one of ", h("code", null, "readers"), " or ", h("code", null, "operators"), " in ", h("code", null, "[admin]"), ". This tab keeps it until it is closed."),
      isRefused ? h("p", { class: "bad-text", role: "alert" }, "This token is not valid.") : null,
      h("label", { for: field }, "Token"), input,
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Log in"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
