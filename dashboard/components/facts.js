// Numbers and tables that change once a second: what is the same stays as it is in the page.

const KEPT = new WeakMap();

export default function (component) {
  const root = component.parentElement.querySelector(".facts");
  if (!root) return;
  const { live, ...shown } = component.data;
  if (!KEPT.has(root)) {
    KEPT.set(root, { boxes: new Map(), live: [] });
    hear(root);
  }
  KEPT.get(root).live = live;
  place(root, shown);
}

function hear(root) {
  // What the page's clock was answered, as far as this place shows it.
  const newer = ({ detail }) => {
    if (!root.isConnected) window.removeEventListener("onearena-arena", newer);
    else if (KEPT.get(root).live.length) {
      place(root, Object.fromEntries(KEPT.get(root).live.map((name) => [name, detail[name]])));
      detail.heard += 1;
    }
  };
  window.addEventListener("onearena-arena", newer);
}

function place(root, { numbers = [], tables = [], notes = [], words: aloud = "" }) {
  const kept = KEPT.get(root).boxes;
  if (notes.length) redrawn(root, kept, "notes", notes, drawNotes);
  if (numbers.length) redrawn(root, kept, "numbers", numbers, drawNumbers);
  for (const table of tables) redrawn(root, kept, `table ${table.title}`, table, drawTable);
  if (aloud) redrawn(root, kept, "words", aloud, drawWords);
}

function redrawn(root, kept, key, value, draw) {
  const text = JSON.stringify(value);
  const known = kept.get(key);
  if (known && known.text === text) return;
  const box = known ? known.box : document.createElement("div");
  if (!known) root.append(box);
  draw(box, value);
  kept.set(key, { text, box });
}

const words = (cell) => (typeof cell === "number" ? cell.toLocaleString("en-US") : cell);

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function drawNotes(box, notes) {
  box.className = "notes";
  box.textContent = notes.join(" ");
}

function drawWords(box, text) {
  if (!box.firstChild) {
    box.className = "words";
    const details = element("details");
    details.append(element("summary", "The map in words"), element("p", ""));
    box.append(details);
  }
  box.querySelector("p").textContent = text;
}

function drawNumbers(box, numbers) {
  if (box.className !== "numbers" || box.childElementCount !== numbers.length) {
    box.className = "numbers";
    box.replaceChildren(...numbers.map(([name]) => {
      const pair = element("dl");
      pair.append(element("dt", name), element("dd", ""));
      return pair;
    }));
  }
  numbers.forEach(([, value], at) => {
    const cell = box.children[at].lastChild;
    if (cell.textContent !== value) cell.textContent = value;
  });
}

function drawTable(box, { title, columns, rows, shown, empty }) {
  if (!box.firstChild) {
    box.className = "table";
    const id = `t-${Math.random().toString(36).slice(2)}`;
    const scroll = element("div", undefined, {
      class: "scroll", tabindex: "0", role: "region", "aria-labelledby": id,
    });
    scroll.style.height = `${34 + 29 * shown}px`;
    box.append(element("h3", title, { id }), scroll);
  }
  const scroll = box.lastChild;
  if (!rows.length) {
    scroll.replaceChildren(element("p", empty || "none"));
    return;
  }
  const table = element("table");
  const head = element("tr");
  head.append(...columns.map((name) => element("th", name, { scope: "col" })));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    line.append(...row.map((cell) => {
      const made = element("td", words(cell));
      if (typeof cell === "number") made.className = "number";
      return made;
    }));
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  table.append(top, body);
  const { scrollTop, scrollLeft } = scroll;
  scroll.replaceChildren(table);
  scroll.scrollTop = scrollTop;
  scroll.scrollLeft = scrollLeft;
}
