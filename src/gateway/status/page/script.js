"use strict";
// Keeps the page current. Without it the page is the same, and reloads by itself less often.
(() => {
  const EVERY_MS = 5000;

  // What the reader has opened or scrolled stays as it is.
  function carryOver(before, after) {
    for (const open of before.querySelectorAll("details[open][id]")) {
      after.querySelector("#" + CSS.escape(open.id))?.setAttribute("open", "");
    }
    return [...before.querySelectorAll(".wide[id]")].map((wide) => [wide.id, wide.scrollLeft]);
  }

  async function refresh() {
    // Not while text is selected or the page is hidden.
    if (document.hidden || !getSelection().isCollapsed) return;
    const main = document.querySelector("main");
    try {
      const answer = await fetch(location.pathname, { cache: "no-store" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = document.adoptNode(page.querySelector("main"));
      const scrolled = carryOver(main, next);
      main.replaceWith(next);
      for (const [id, left] of scrolled) document.getElementById(id)?.scrollTo({ left });
      document.title = page.title;
    } catch (error) {
      main.classList.add("stale");
      main.querySelector(".updated").textContent = `no answer: ${error.message}`;
    }
  }

  setInterval(refresh, EVERY_MS);
  document.addEventListener("visibilitychange", refresh);
})();
