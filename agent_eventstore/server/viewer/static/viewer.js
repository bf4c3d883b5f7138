// What a page without scripts lacks: search as one types, live rows, tool calls on demand, keys.
import { followConversation } from "./live.js";
import { linkBlocks } from "./blocks.js";

const base = document.body.dataset.base;
const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

const store = {
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* not kept */ } },
};

// Theme
find("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  store.set("eventstore-theme", root.dataset.theme);
});

// The list of conversations
const filters = find("#filters");
if (filters) {
  let timer = 0;
  let turn = 0;
  const load = async () => {
    const mine = ++turn;
    const chosen = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value));
    const address = `${base}/?${chosen}`;
    history.replaceState(null, "", chosen.size ? address : `${base}/`);
    chosen.set("part", "rows");
    const answer = await fetch(`${base}/?${chosen}`);
    const text = await answer.text();
    if (mine === turn && answer.ok) find("#rows").innerHTML = text;
  };
  const soon = () => { clearTimeout(timer); timer = setTimeout(load, 110); };
  // A name that is typed halfway finds nothing: the filters by name wait until it is complete.
  filters.addEventListener("input", (event) => { if (!event.target.matches("input:not([data-search], [type=checkbox])")) soon(); });
  filters.addEventListener("change", soon);
  filters.addEventListener("submit", (event) => { event.preventDefault(); load(); });
  // States change while one looks on; nothing moves under a hand, or on an older page.
  setInterval(() => {
    const still = document.hidden || find("#rows .chosen, #rows :focus, #rows:hover, dialog[open]") || find("#rows").scrollTop;
    if (!still && !new URLSearchParams(location.search).has("after")) load();
  }, 5000);
  find("#rows").addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr");
    if (row && !event.target.closest("a")) find("a", row).click();
  });
}
// A rebuild goes on while one looks at it
if (find("[data-refresh]")) setInterval(() => { if (!document.hidden) location.reload(); }, 3000);
const choose = (step) => {
  const rows = all("#rows tbody tr");
  if (!rows.length) return;
  const now = rows.findIndex((row) => row.classList.contains("chosen"));
  rows[now]?.classList.remove("chosen");
  const next = rows[Math.max(0, Math.min(rows.length - 1, now + step))];
  next.classList.add("chosen");
  find("a", next).focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
};

// A conversation
const conversation = find("#conversation");
const loadCall = async (details) => {
  if (!details.dataset.call || details.dataset.loaded) return;
  details.dataset.loaded = "1";
  const answer = await fetch(`${details.dataset.call}?part=call`);
  if (answer.ok) find(".inside", details).innerHTML = await answer.text();
  else delete details.dataset.loaded;
};
if (conversation) {
  const timeline = find("#timeline");
  // "toggle" does not bubble.
  timeline.addEventListener("toggle", (event) => {
    if (event.target.open && event.target.matches(".call")) loadCall(event.target);
  }, true);
  timeline.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-earlier]");
    if (!link) return;
    event.preventDefault();
    const answer = await fetch(`${link.href}&part=items`);
    if (!answer.ok) { delete link.dataset.loading; return; }
    const height = timeline.scrollHeight - timeline.scrollTop;
    link.parentElement.outerHTML = await answer.text();
    timeline.style.scrollBehavior = "auto";
    timeline.scrollTop = timeline.scrollHeight - height;
    timeline.style.scrollBehavior = "";
  });
  const scrubber = find("#at");
  scrubber.addEventListener("input", () => { find("#at-text").textContent = scrubber.value; });
  scrubber.addEventListener("change", () => {
    location.href = scrubber.value === scrubber.max
      ? conversation.dataset.path : `${conversation.dataset.path}?at=${scrubber.value}`;
  });
  const mark = () => {
    const top = timeline.getBoundingClientRect().top + 60;
    let current = null;
    for (const link of all("#outline a")) {
      const row = document.getElementById(`i${link.dataset.version}-0`);
      if (row && row.getBoundingClientRect().top <= top) current = link;
      link.classList.remove("chosen");
    }
    (current ?? find("#outline a"))?.classList.add("chosen");
  };
  let waiting = false;
  timeline.addEventListener("scroll", () => {
    const earlier = timeline.scrollTop < 400 && find("[data-earlier]:not([data-loading])", timeline);
    if (earlier) { earlier.dataset.loading = ""; earlier.click(); }
    if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; mark(); }); }
  });
  find("#outline").parentElement.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (link && !document.getElementById(`i${link.dataset.version}-0`)) {
      event.preventDefault();
      location.href = `${conversation.dataset.path}?before=${Number(link.dataset.version) + 60}#i${link.dataset.version}-0`;
    }
  });
  if (conversation.dataset.follow) {
    if (!location.hash) {
      timeline.style.scrollBehavior = "auto";
      timeline.scrollTop = timeline.scrollHeight;
      timeline.style.scrollBehavior = "";
    }
    followConversation(conversation, timeline);
  }
  mark();
}
const message = (step) => {
  const links = all("#outline a");
  const now = links.findIndex((link) => link.classList.contains("chosen"));
  links[Math.max(0, Math.min(links.length - 1, now + step))]?.click();
};
const toggleCalls = () => {
  const calls = all(".call").slice(0, 200);
  const open = calls.some((call) => !call.open);
  for (const call of calls) call.open = open;
};

// What the model saw
if (find("#blocks")) linkBlocks();
find("#only-changed")?.addEventListener("change", (event) => {
  find("#messages").classList.toggle("only-changed", event.target.checked);
});

// Keys
const dialog = find("#keys-dialog");
const switched = find("#keys-on");
switched.checked = store.get("eventstore-keys") !== "off";
switched.addEventListener("change", () => store.set("eventstore-keys", switched.checked ? "on" : "off"));
find("#keys").addEventListener("click", () => dialog.showModal());
find("#keys-close").addEventListener("click", () => dialog.close());
let before = "";
const places = { c: "/", u: "/usage", t: "/tools", o: "/operations" };
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]):not([type=range]), textarea, select");
  if (event.key === "Escape" && typing) typing.blur();
  if (typing || dialog.open || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!switched.checked && event.key !== "?") return;
  const key = event.key;
  const led = before === "g";
  before = key;
  if (led && places[key]) { location.href = base + places[key]; return; }
  const act = {
    "/": () => find("[data-search]")?.focus(),
    "?": () => dialog.showModal(),
    j: () => choose(1),
    k: () => choose(-1),
    n: () => message(1),
    p: () => message(-1),
    e: toggleCalls,
    "[": () => find("[data-previous]")?.click(),
    "]": () => find("[data-next]")?.click(),
    w: () => (find("[data-why-field]") ? find("[data-why-field]").focus() : find("[data-why]")?.click()),
  }[key];
  if (act) { event.preventDefault(); act(); }
});
