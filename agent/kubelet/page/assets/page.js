// Shows what "data" and "log" say. Texts come from pods and are put in as text only.
"use strict";
const every = 10000; // ms, while somebody looks
const $ = (id) => document.getElementById(id);

function el(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined && text !== null) e.textContent = text;
  if (className) e.className = className;
  return e;
}
function svg(name, attributes) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  return e;
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}
function cores(n) { return n < 0.9995 ? Math.round(n * 1000) + " m" : n.toFixed(2); }
function ago(from, now) {
  const s = Math.max(0, Math.round((now - from) / 1000));
  if (s < 120) return s + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

// chart draws series of the last hour, each a list of numbers; most is what the top stands for.
function chart(title, value, of, history, series, most) {
  const f = el("figure"), caption = el("figcaption");
  caption.append(el("span", title), el("span", of));
  const strong = el("strong");
  strong.append(...value);
  const width = 240, height = 58, end = history.length ? Date.parse(history[history.length - 1].at) : 0;
  const s = svg("svg", { viewBox: "0 0 " + width + " " + height, preserveAspectRatio: "none", role: "img", "aria-label": title + ", the last hour" });
  s.append(svg("line", { class: "base", x1: 0, x2: width, y1: height - .5, y2: height - .5 }));
  const x = (r) => width - (end - Date.parse(r.at)) / 3600000 * width;
  const y = (v) => height - 1 - Math.min(1, v / (most || 1)) * (height - 4);
  series.forEach((get, i) => {
    const at = history.map((r) => x(r).toFixed(1) + " " + y(get(r)).toFixed(1));
    if (at.length < 2) return;
    if (series.length === 1) s.append(svg("path", { class: "area", d: "M" + x(history[0]).toFixed(1) + " " + height + " L" + at.join(" L") + " L" + width + " " + height + " Z" }));
    s.append(svg("path", { class: i ? "b" : "a", d: "M" + at.join(" L") }));
  });
  const axis = el("div", null, "axis");
  axis.append(el("span", "1 h ago"), el("span", "now"));
  f.append(caption, strong, s, axis);
  return f;
}

function charts(d) {
  const h = d.history, last = h[h.length - 1];
  if (!last) return;
  const share = (n, of) => of ? Math.round(n / of * 100) + " %" : "";
  const wire = Math.max(1024, ...h.map((r) => Math.max(r.in, r.out)));
  const traffic = [el("span", bytes(last.in) + "/s", "in"), el("small", " "), el("span", bytes(last.out) + "/s", "out")];
  const out = [
    chart("CPU", [cores(last.cores), el("small", " " + share(last.cores, d.cores))], d.cores + (d.cores === 1 ? " core" : " cores"), h, [(r) => r.cores], d.cores),
    chart("Memory", [bytes(last.memory), el("small", " " + share(last.memory, d.memory))], bytes(d.memory), h, [(r) => r.memory], d.memory),
  ];
  if (d.disk) out.push(chart("Disk", [bytes(last.disk), el("small", " " + share(last.disk, d.disk.total))], bytes(d.disk.total), h, [(r) => r.disk], d.disk.total));
  out.push(chart("Wire", traffic, "in, out", h, [(r) => r.in, (r) => r.out], wire));
  $("charts").replaceChildren(...out);
}

function pods(d) {
  const rows = d.pods.map((p) => {
    const tr = el("tr"), name = el("td"), open = el("button", p.name);
    open.type = "button";
    open.addEventListener("click", () => show(p, p.containers[0]));
    name.append(open, el("small", p.namespace));
    const good = p.ready || p.state === "Succeeded", bad = !good && p.state !== "Pending" && p.state !== "Running" && p.state !== "Terminating";
    const state = el("td", p.state + (p.ready || p.state !== "Running" ? "" : ", not ready"), "state" + (good ? " good" : bad ? " bad" : ""));
    tr.append(name, state, el("td", p.nanoCores === null ? "–" : cores(p.nanoCores / 1e9), "n"), el("td", p.memory === null ? "–" : bytes(p.memory), "n"), el("td", p.restarts, "n"));
    return tr;
  });
  $("pods").tBodies[0].replaceChildren(...rows);
  $("counts").textContent = d.counts;
  $("more").hidden = !d.more;
  $("more").textContent = "and " + d.more + " more: islet pods lists all";
}

function events(d) {
  const now = Date.parse(d.now);
  $("events").replaceChildren(...d.events.map((e) => {
    const li = el("li", null, e.type === "Warning" ? "warning" : ""), p = el("p"), at = el("time", ago(Date.parse(e.last), now) + " ago");
    at.dateTime = e.last;
    p.append(el("b", e.reason), " " + e.message + (e.count > 1 ? " (" + e.count + " times)" : ""));
    if (e.pod) p.append(el("small", " " + e.namespace + "/" + e.pod + (e.container ? "/" + e.container : "")));
    li.append(at, p);
    return li;
  }));
}

let shown = null; // whose log

async function show(pod, container) {
  shown = { pod, container };
  $("log").hidden = false;
  $("log-title").textContent = "Log of " + pod.namespace + "/" + pod.name;
  $("containers").replaceChildren(...pod.containers.map((c) => {
    const b = el("button", c);
    b.type = "button";
    b.setAttribute("aria-pressed", String(c === container));
    b.addEventListener("click", () => show(pod, c));
    return b;
  }));
  await tail();
  $("log").scrollIntoView({ block: "nearest" });
}

async function tail() {
  if (!shown) return;
  const of = shown, pre = $("log").querySelector("pre");
  const q = new URLSearchParams({ namespace: of.pod.namespace, pod: of.pod.name, container: of.container || "" });
  let text;
  try {
    const r = await fetch("log?" + q);
    text = await r.text();
  } catch (e) { text = "The node does not answer."; }
  if (of !== shown) return;
  const below = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
  pre.textContent = text || "Nothing yet.";
  if (below) pre.scrollTop = pre.scrollHeight;
}

async function refresh() {
  try {
    const r = await fetch("data");
    if (!r.ok) throw new Error(await r.text());
    const d = await r.json(), now = Date.parse(d.now);
    document.title = d.node + " · islet";
    $("node").textContent = d.node;
    $("about").textContent = "islet " + d.version + " · up " + ago(Date.parse(d.started), now) + (d.link ? " · control plane: " + d.link : " · stands alone");
    $("attention").hidden = !d.attention.length;
    $("attention").querySelector("ul").replaceChildren(...d.attention.map((a) => el("li", a)));
    charts(d); pods(d); events(d);
    $("lost").hidden = true;
    document.documentElement.dataset.shown = "yes";
    await tail();
  } catch (e) {
    $("lost").hidden = false;
    $("lost").textContent = "The node does not answer: what is below is of before. " + e.message;
  }
}

let timer = 0;
function again() {
  clearTimeout(timer);
  if (document.hidden) return; // nobody looks: nothing is asked
  refresh().finally(() => { timer = setTimeout(again, every); });
}
document.addEventListener("visibilitychange", again);
again();
