// Ties the blocks of the history to the messages of the request, for the pointer and for keys.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

export function linkBlocks() {
  const blocks = all("#blocks .block");
  const about = document.querySelector("#about");
  const first = about.innerHTML;
  const pane = document.querySelector(".blocks");

  const show = (block, scroll) => {
    all(".on").forEach((each) => each.classList.remove("on"));
    if (!block) { about.innerHTML = first; return; }
    block.classList.add("on");
    const text = document.getElementById(`about-${block.dataset.entry}`);
    about.innerHTML = text ? text.innerHTML : first;
    const messages = all(`.message[data-entry="${block.dataset.entry}"]`);
    messages.forEach((each) => each.classList.add("on"));
    if (scroll) messages[0]?.scrollIntoView({ block: "nearest" });
  };

  blocks.forEach((block, at) => {
    block.addEventListener("mouseenter", () => show(block, false));
    block.addEventListener("click", () => { show(block, true); block.focus(); });
    block.addEventListener("focus", () => {
      blocks.forEach((each) => each.setAttribute("tabindex", each === block ? "0" : "-1"));
      show(block, true);
    });
    block.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      blocks[Math.max(0, Math.min(blocks.length - 1, at + step))].focus();
    });
  });
  all(".message[data-entry]").forEach((message) => {
    message.addEventListener("mouseenter", () => {
      const block = blocks.find((each) => each.dataset.entry === message.dataset.entry);
      if (!block) return;
      show(block, false);
      const box = block.getBoundingClientRect();
      const seen = pane.getBoundingClientRect();
      if (box.top < seen.top || box.bottom > seen.bottom) pane.scrollTop += box.top - seen.top - 80;
    });
  });
  pane.scrollTop = pane.scrollHeight;
}
