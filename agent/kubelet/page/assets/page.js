// Keeps the page current. The agent makes all HTML, in which it has escaped every text. This script only asks for the page again and
// carries the differences over, so that focus, selection and scroll positions stay. Without JavaScript the page shows the same.
"use strict";
const every = 10000; // ms between two requests, while somebody looks
const old = 25; // seconds after which the page is marked as old

// carry makes have like want. Rows with a data-key keep their element when others come or go before them.
function carry(have, want) {
  if (have.isEqualNode(want)) return;
  if (have.nodeType === Node.TEXT_NODE) { have.data = want.data; return; }
  for (const a of [...have.attributes]) if (!want.hasAttribute(a.name)) have.removeAttribute(a.name);
  for (const a of want.attributes) if (have.getAttribute(a.name) !== a.value) have.setAttribute(a.name, a.value);
  const key = (n) => (n.dataset && (n.dataset.key || n.id)) || "";
  const known = new Map();
  for (const n of have.childNodes) if (key(n)) known.set(key(n), n);
  let at = have.firstChild;
  for (const n of [...want.childNodes]) {
    const keyed = key(n) && known.get(key(n));
    if (keyed && keyed !== at) have.insertBefore(keyed, at);
    const one = keyed || at;
    if (!one || one.nodeName !== n.nodeName || key(one) !== key(n)) {
      have.insertBefore(document.importNode(n, true), at);
      continue;
    }
    carry(one, n);
    at = one.nextSibling;
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

let received = performance.now(); // when the page's contents were received, on a clock that nobody sets

function mark() {
  const age = document.getElementById("age");
  if (!age) return;
  const s = Math.round((performance.now() - received) / 1000);
  age.textContent = s < 2 ? "" : ", " + (s < 120 ? s + " s" : s < 7200 ? Math.round(s / 60) + " min" : Math.round(s / 3600) + " h") + " ago";
  document.documentElement.classList.toggle("old", s >= old);
}

async function refresh() {
  const lost = document.getElementById("lost");
  try {
    const r = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
    const d = new DOMParser().parseFromString(await r.text(), "text/html");
    if (!r.ok) throw new Error((d.getElementById("failure") || d.body).textContent);
    const pre = document.querySelector("pre"), active = document.activeElement;
    const atEnd = pre && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
    document.title = d.title;
    carry(document.body, d.body);
    if (pre && atEnd) pre.scrollTop = pre.scrollHeight;
    if (active && active !== document.activeElement && active.isConnected) active.focus({ preventScroll: true });
    received = performance.now();
  } catch (e) {
    if (lost) { lost.hidden = false; lost.textContent = "The agent does not answer. Everything below is of before. " + e.message; }
  }
  mark();
}

let timer = 0, clock = 0;
function again() {
  clearTimeout(timer);
  clearInterval(clock);
  if (document.hidden) return; // nobody looks: nothing is asked
  clock = setInterval(mark, 1000);
  refresh().finally(() => { timer = setTimeout(again, every); });
}
document.addEventListener("visibilitychange", again);
document.documentElement.dataset.shown = "yes";
const pre = document.querySelector("pre");
if (pre) pre.scrollTop = pre.scrollHeight;
mark();
clock = setInterval(mark, 1000);
timer = setTimeout(again, every); // the page itself is the first answer
