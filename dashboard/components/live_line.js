// The line under the title, and the clock of the page: it asks for the arena once a second and
// hands the answer to the map, the numbers and the tables as one event. Nothing is asked while the
// page is hidden, and an answer that took long delays the next question.

const PATIENCE_MS = 10000;
const LINES = new WeakMap();
const ICONS = {
  live: "●", stale: "▲", paused: "▮▮", disconnected: "✕", recorded: "◆", unusable: "✕", waiting: "○",
};

export default function (component) {
  const root = component.parentElement.querySelector(".live");
  if (!root || !component.data) return undefined;
  const line = LINES.get(root) || new Line(root);
  LINES.set(root, line);
  line.take(component.data);
  return () => line.stop();
}

class Line {
  constructor(root) {
    this.root = root;
    this.known = "";
    const seen = () => {
      if (!root.isConnected) document.removeEventListener("visibilitychange", seen);
      else if (!document.hidden) this.ask();
    };
    document.addEventListener("visibilitychange", seen);
  }

  take(data) {
    this.stop();
    this.known = ""; // the map now has what the script sent
    this.poll = data.poll;
    this.places = data.places;
    this.every = data.every_ms;
    this.show(data.status);
    if (this.poll) this.again();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.turn = (this.turn || 0) + 1; // an answer that is under way is of an earlier turn
  }

  again() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), this.every);
  }

  async ask() {
    if (!this.timer || !this.root.isConnected || document.hidden) return;
    clearTimeout(this.timer);
    const turn = this.turn;
    let found;
    try {
      const path = `${this.poll}&known=${encodeURIComponent(this.known)}`;
      const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
      found = await answer.json();
    } catch {
      found = { error: "the dashboard itself does not answer" };
    }
    if (turn !== this.turn) return;
    if (found.status) this.show(found.status);
    else this.lost(found.error || "the dashboard itself does not answer");
    if (found.map) {
      found.heard = 0;
      window.dispatchEvent(new CustomEvent("onearena-arena", { detail: found }));
      // A place that is not there yet would else keep what it will be given first.
      if (found.heard === this.places) this.known = found.map.key;
    }
    this.again();
  }

  lost(reason) {
    this.show({ state: "disconnected", text: `disconnected: ${reason}`, title: this.title || "" });
  }

  show({ state, text, title }) {
    const [icon, words, name] = this.root.children;
    if (this.root.dataset.state !== state) {
      this.root.dataset.state = state;
      icon.textContent = ICONS[state] || "";
    }
    if (words.textContent !== text) words.textContent = text;
    if (this.title !== title) name.textContent = title;
    this.title = title;
  }
}
