// Follows a conversation: the service says that something changed, and the changed rows are loaded.
const find = (selector, root = document) => root.querySelector(selector);

export function followConversation(page, timeline) {
  let version = Number(page.dataset.version);
  let busy = false;
  let again = false;

  const place = (row) => {
    const known = document.getElementById(row.id);
    if (known) {
      const open = [...known.querySelectorAll("details")].map((each) => each.open);
      known.replaceWith(row);
      row.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? false; });
      return;
    }
    const key = (each) => Number(each.dataset.v) * 1000 + Number(each.dataset.p);
    const rows = [...timeline.querySelectorAll("[data-v]")];
    const after = rows.reverse().find((each) => key(each) < key(row));
    if (after) after.after(row); else timeline.append(row);
  };

  const load = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(`${page.dataset.path}/items?after=${version}`);
      if (!answer.ok) return;
      const holder = document.createElement("template");
      holder.innerHTML = await answer.text();
      const part = holder.content.firstElementChild;
      const atEnd = timeline.scrollHeight - timeline.scrollTop - timeline.clientHeight < 80;
      const users = part.querySelector(".item.user") !== null;
      for (const gone of part.dataset.gone.split(" ").filter(Boolean)) document.getElementById(gone)?.remove();
      for (const row of [...part.children]) place(row);
      const last = part.dataset.version;
      const reached = Number(part.dataset.last);
      if (reached > version) {
        version = reached;
        if (reached < Number(last)) again = true; // the changes come in pages
      }
      find("#version").textContent = last;
      const scrubber = find("#at");
      const wasLast = scrubber.value === scrubber.max;
      scrubber.max = last;
      if (wasLast) { scrubber.value = last; find("#at-text").textContent = last; }
      if (atEnd) timeline.scrollTop = timeline.scrollHeight;
      if (users) {
        const outline = await fetch(`${page.dataset.path}/outline`);
        if (outline.ok) find("#outline").outerHTML = await outline.text();
      }
    } finally {
      busy = false;
      if (again) { again = false; setTimeout(load, 60); }
    }
  };

  // Usage, writer and calls follow more slowly than the rows.
  let asideDue = 0;
  const loadAside = () => {
    if (asideDue) return;
    asideDue = setTimeout(async () => {
      asideDue = 0;
      const answer = await fetch(`${page.dataset.path}?part=aside`);
      if (answer.ok) find("#aside").innerHTML = await answer.text();
    }, 1500);
  };

  const source = new EventSource(`${page.dataset.follow}?after=${version}`);
  const live = find("#live");
  const news = () => { live.hidden = false; load(); loadAside(); };
  source.addEventListener("message", news);
  for (const name of ["update", "timeline", "changes"]) source.addEventListener(name, news);
  source.addEventListener("open", () => { live.hidden = false; });
  source.addEventListener("error", () => { live.hidden = true; });
  addEventListener("pagehide", () => source.close());
}
