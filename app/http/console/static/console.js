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
  if (!button || event.target.hasAttribute("hx-post")) return;
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
