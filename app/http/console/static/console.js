"use strict";
/* What pages do with a script; each works without. The rest is htmx, told by attributes. */
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Enter" && event.ctrlKey) {
    const form = event.target.closest("form") || document.querySelector("form.builder");
    const button = form && form.querySelector("button.go");
    if (button) { event.preventDefault(); button.click(); }
  } else if (typing || event.ctrlKey || event.altKey || event.metaKey) {
    return;
  } else if (event.key === "/") {
    const first = document.querySelector("form.builder :is(input:not([type=hidden]), select, textarea)");
    if (first) { event.preventDefault(); first.focus(); }
  } else if (event.key === "?") {
    window.location.assign("/console/me#keys");
  }
});

/* A button that works says so, and is not pressed twice. */
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!button || event.target.hasAttribute("hx-post") || event.target.dataset.parts) return;
  window.setTimeout(() => {
    button.setAttribute("aria-disabled", "true");
    button.dataset.said = button.textContent;
    button.textContent = "Working …";
  }, 300);
  event.target.addEventListener("submit", (again) => again.preventDefault());
});

/* Whoever comes back by the browser's button finds buttons as they were. */
window.addEventListener("pageshow", (event) => {
  if (event.persisted) window.location.reload();
});

/* The answer of a question is where the focus goes. */
document.addEventListener("DOMContentLoaded", () => {
  const head = document.querySelector("[data-focus]");
  if (head) head.focus();
});

/* A secret goes to the clipboard at a press. */
document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; });
    });
  }
});

/* A form with a file is sent without leaving the page, so that the choice of the file stays: what comes back takes the
   place of one part of the page, or of all of it where the reply has no such part. */
document.addEventListener("submit", async (event) => {
  const form = event.target, id = form.dataset.parts, button = event.submitter;
  if (!id) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy") === "true") return;
  form.setAttribute("aria-busy", "true");
  const said = button && button.textContent;
  if (button) { button.setAttribute("aria-disabled", "true"); button.textContent = "Working …"; }
  const bar = document.createElement("progress");
  bar.setAttribute("aria-label", "Working");
  const slow = window.setTimeout(() => button && button.after(bar), 10000);
  let main, part;
  try {
    const reply = await fetch(form.action, { method: "POST", body: new FormData(form, button) });
    main = new DOMParser().parseFromString(await reply.text(), "text/html").querySelector("main");
    part = main.querySelector("#" + id);
  } catch (error) {
    main = document.createElement("main");
    main.innerHTML = '<p class="refusal" role="alert">The server could not be reached. Nothing was done that was not told.</p>';
  }
  window.clearTimeout(slow);
  bar.remove();
  form.removeAttribute("aria-busy");
  if (button) { button.removeAttribute("aria-disabled"); button.textContent = said; }
  const old = document.getElementById(id), refusal = main.querySelector(".refusal");
  if (part) {
    old.replaceWith(part);
  } else if (refusal) {
    /* What was typed stays: the refusal stands above it. */
    const above = old.querySelector(":scope > .whole");
    if (above) above.remove();
    refusal.classList.add("whole");
    old.prepend(refusal);
  } else {
    document.querySelector("main").replaceWith(main);
  }
  const head = document.querySelector("[data-focus], .refusal");
  if (head) { head.setAttribute("tabindex", "-1"); head.focus(); }
});

/* What is changed is guessed no more; the server has the last word on it. */
document.addEventListener("input", (event) => {
  const attribute = event.target.closest(".attr.guessed");
  if (!attribute) return;
  attribute.classList.remove("guessed");
  const tag = attribute.querySelector("legend .tag");
  if (tag) tag.remove();
});
