// The map of the arena: a strip of the whole, and the window looked at, wrapped into lines.
//
// It draws what `dashboard/map_model.py` sends and computes no fact of its own: every address,
// name and number comes from there. What a user does is kept here (view, cursor) and told to the
// page as two values: `view`, the bytes looked at, and `picked`, an address.

const LINES_KEPT = new WeakMap();

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  const root = parentElement.querySelector(".om");
  if (!root || !data) return undefined;
  let map = LINES_KEPT.get(root);
  if (!map) {
    map = new ArenaMap(root);
    LINES_KEPT.set(root, map);
    hear(root, map);
  }
  map.live = Boolean(data.live);
  map.tell = setStateValue;
  map.take(data);
  return undefined;
}

function hear(root, map) {
  // What the page's clock was answered, until the map leaves the page.
  const newer = (event) => {
    if (!root.isConnected) window.removeEventListener("onearena-arena", newer);
    else if (map.live) {
      map.take(event.detail.map);
      event.detail.heard += 1;
    }
  };
  window.addEventListener("onearena-arena", newer);
}

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const count = (value) => Number(value).toLocaleString("en-US");

class ArenaMap {
  constructor(root) {
    this.root = root;
    this.canvas = root.querySelector("canvas");
    this.tip = root.querySelector(".om-tip");
    this.say = root.querySelector(".om-say");
    this.range = root.querySelector(".om-range");
    this.view = null; // [start, end) or null: all of it
    this.cursor = null; // the address under the keyboard
    this.drag = null;
    this.tiles = new Map();
    this.listen();
  }

  take(data) {
    const first = !this.data;
    const grown = !first && this.data.arena_bytes !== data.arena_bytes;
    this.data = data;
    this.row = bytesOf(data.row);
    this.whole = bytesOf(data.whole);
    this.columns = (data.columns || []).map((column) => ({
      band: data.bands[column.band],
      index: column.band,
      first: column.first,
      states: bytesOf(column.states),
      ids: new BigInt64Array(bytesOf(column.ids).buffer),
      holders: new Int32Array(bytesOf(column.holders).buffer),
      flags: bytesOf(column.flags),
    }));
    if (first && (data.window[0] > 0 || data.window[1] < data.arena_bytes)) {
      this.view = data.window.slice();
    }
    if (grown && this.view) this.look(null);
    this.canvas.setAttribute("aria-label", data.label);
    this.legend();
    this.draw();
  }

  // -- where things are
  window() {
    return this.view || [0, this.data.arena_bytes];
  }

  lineBytes(size) {
    const lines = this.data.layout.lines;
    const least = Math.ceil(size / lines);
    const step = Math.max(16, 2 ** Math.max(0, Math.floor(Math.log2(least)) + 1 - 5));
    return Math.ceil(least / step) * step;
  }

  lineTop(line) {
    const layout = this.data.layout;
    return layout.lines_top + line * (layout.line_height + layout.line_gap);
  }

  addressAt(x, y) {
    // The address under a point of the canvas in CSS pixels, or null beside all bytes.
    const layout = this.data.layout;
    const wide = this.wide - layout.left - layout.right;
    const share = (x - layout.left) / wide;
    if (share < 0 || share >= 1) return null;
    if (y >= layout.strip_top && y < layout.strip_top + layout.strip_height) {
      return Math.floor(share * this.data.arena_bytes);
    }
    const line = Math.floor((y - layout.lines_top) / (layout.line_height + layout.line_gap));
    if (line < 0 || line >= layout.lines || y < layout.lines_top) return null;
    const [start, end] = this.window();
    const address = Math.floor(start + (line + share) * this.lineBytes(end - start));
    return address < end ? address : null;
  }

  // -- drawing
  draw() {
    const data = this.data;
    this.wide = Math.max(240, this.root.clientWidth);
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(this.wide * ratio);
    const height = Math.round(data.layout.height * ratio);
    const canvas = this.canvas;
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      canvas.style.height = `${data.layout.height}px`;
    }
    this.ratio = ratio;
    const dark = this.dark();
    this.colours = dark ? data.dark : data.light;
    this.theme = `${dark}/${ratio}`;
    const ctx = canvas.getContext("2d");
    this.ctx = ctx;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, width, height);
    this.drawStrip();
    this.drawLines();
    this.drawMoves();
    this.drawFrames();
    const [start, end] = this.window();
    this.range.textContent = `bytes ${count(start)} to ${count(end)}`;
    canvas.dataset.key = data.key;
    canvas.dataset.window = `${start}-${end}`;
    canvas.dataset.lineBytes = String(this.lineBytes(end - start));
    canvas.dataset.detail = data.columns ? "units" : "pixels";
    canvas.dataset.theme = dark ? "dark" : "light";
  }

  dark() {
    const probe = getComputedStyle(this.root).getPropertyValue("--st-background-color").trim();
    const ctx = this.canvas.getContext("2d");
    ctx.fillStyle = "#ffffff";
    if (probe) ctx.fillStyle = probe;
    const value = String(ctx.fillStyle);
    if (!value.startsWith("#")) return false;
    const part = (at) => parseInt(value.slice(at, at + 2), 16);
    return 0.299 * part(1) + 0.587 * part(3) + 0.114 * part(5) < 128;
  }

  px(value) {
    return Math.round(value * this.ratio);
  }

  words(text, x, y, { align = "left", colour = this.colours.dim, size = 11, bold = false } = {}) {
    const ctx = this.ctx;
    const family = 'ui-monospace, "DejaVu Sans Mono", monospace';
    ctx.font = `${bold ? "600 " : ""}${Math.round(size * this.ratio)}px ${family}`;
    ctx.textAlign = align;
    ctx.textBaseline = "alphabetic";
    ctx.fillStyle = colour;
    ctx.fillText(text, x, y);
    return ctx.measureText(text).width;
  }

  tile(state) {
    // The pattern of a state: its fill, and marks that leave most of the fill free.
    const key = `${this.theme}/${state}`;
    if (this.tiles.has(key)) return this.tiles.get(key);
    const side = Math.max(4, Math.round(8 * this.ratio));
    const tile = document.createElement("canvas");
    tile.width = tile.height = side;
    const ctx = tile.getContext("2d");
    ctx.fillStyle = this.colours.fills[state];
    ctx.fillRect(0, 0, side, side);
    const mark = this.colours.marks[state];
    ctx.fillStyle = mark;
    ctx.strokeStyle = mark;
    ctx.lineWidth = Math.max(1, this.ratio);
    if (state === 1) {
      const dot = Math.max(1, Math.round(2 * this.ratio));
      ctx.fillRect(Math.round(side / 2 - dot / 2), Math.round(side / 2 - dot / 2), dot, dot);
    } else if (state === 3) {
      ctx.beginPath();
      for (const shift of [-side, 0, side]) {
        ctx.moveTo(shift, side);
        ctx.lineTo(shift + side, 0);
      }
      ctx.stroke();
    } else if (state === 5) {
      ctx.fillRect(0, 0, Math.max(1, Math.round(2 * this.ratio)), side);
    }
    const pattern = this.ctx.createPattern(tile, "repeat");
    this.tiles.set(key, pattern);
    return pattern;
  }

  cell(state, x0, x1, y0, y1) {
    if (!state || x1 <= x0) return;
    const ctx = this.ctx;
    ctx.fillStyle = x1 - x0 < 4 * this.ratio ? this.colours.fills[state] : this.tile(state);
    ctx.fillRect(x0, y0, x1 - x0, y1 - y0);
    if (state === 4 && x1 - x0 >= 4 * this.ratio) {
      const line = Math.max(1, Math.round(this.ratio));
      ctx.strokeStyle = this.colours.marks[state];
      ctx.lineWidth = line;
      ctx.strokeRect(x0 + line / 2, y0 + line / 2, x1 - x0 - line, y1 - y0 - line);
    }
  }

  worst(start, end) {
    // The worst state in these bytes: from the window's row where it has them, else the whole's.
    const [low, high] = this.data.window;
    const inside = start >= low && end <= high;
    const row = inside ? this.row : this.whole;
    const from = inside ? low : 0;
    const size = inside ? high - low : this.data.arena_bytes;
    const first = Math.max(0, Math.floor(((start - from) * row.length) / size));
    const last = Math.min(row.length, Math.max(first + 1, Math.ceil(((end - from) * row.length) / size)));
    let found = 0;
    for (let at = first; at < last; at += 1) if (row[at] > found) found = row[at];
    return found;
  }

  pixels(start, size, x0, x1, y0, y1) {
    // Device pixels [x0, x1) stand for bytes [start, start + size). All are set at once; then equal
    // neighbours that are wide enough get their pattern.
    const wide = x1 - x0;
    if (wide <= 0) return;
    const states = new Uint8Array(wide);
    for (let at = 0; at < wide; at += 1) {
      const a = start + (at * size) / wide;
      const b = start + ((at + 1) * size) / wide;
      states[at] = this.worst(a, Math.max(a + 1e-9, b - 1e-9));
    }
    const high = y1 - y0;
    const image = this.ctx.createImageData(wide, high);
    const colours = new Uint32Array(image.data.buffer);
    const fills = this.words32();
    for (let at = 0; at < wide; at += 1) colours[at] = fills[states[at]];
    for (let line = 1; line < high; line += 1) colours.copyWithin(line * wide, 0, wide);
    this.ctx.putImageData(image, x0, y0);
    let from = 0;
    for (let at = 1; at <= wide; at += 1) {
      if (at < wide && states[at] === states[from]) continue;
      if (states[from] && at - from >= 4 * this.ratio) {
        this.cell(states[from], x0 + from, x0 + at, y0, y1);
      }
      from = at;
    }
  }

  words32() {
    // The fills as words of an image; free bytes are clear.
    const key = `${this.theme}/words`;
    if (!this.tiles.has(key)) {
      const words = this.colours.fills.map((colour, state) => {
        const part = (at) => parseInt(colour.slice(at, at + 2), 16);
        return state ? (255 << 24 | part(5) << 16 | part(3) << 8 | part(1)) >>> 0 : 0;
      });
      this.tiles.set(key, Uint32Array.from(words));
    }
    return this.tiles.get(key);
  }

  drawStrip() {
    const { layout, arena_bytes: size, bands } = this.data;
    const ctx = this.ctx;
    const x0 = this.px(layout.left);
    const x1 = this.px(this.wide - layout.right);
    const y0 = this.px(layout.strip_top);
    const y1 = this.px(layout.strip_top + layout.strip_height);
    const at = (address) => x0 + ((x1 - x0) * address) / size;
    this.pixels(0, size, x0, x1, y0, y1);
    ctx.strokeStyle = this.colours.line;
    ctx.lineWidth = Math.max(1, this.ratio);
    ctx.strokeRect(x0 - 0.5, y0 - 0.5, x1 - x0 + 1, y1 - y0 + 1);
    this.words("arena", x0 - this.px(8), y0 + this.px(21), { align: "right" });
    const marks = [[0, "0"], [size, count(size)]];
    let clear = -Infinity;
    for (const [index, band] of bands.entries()) {
      if (band.end <= band.start) continue;
      this.bracket(index, at(band.start), at(band.end), y0 - this.px(6));
      const name = `${band.name} (${band.placement.replace("_", " ")})`;
      const middle = (at(band.start) + at(band.end)) / 2;
      ctx.font = `600 ${this.px(12)}px sans-serif`;
      const half = ctx.measureText(name).width * 0.58;
      const place = Math.min(Math.max(middle, x0 + half, clear + half + this.px(10)), x1 - half);
      if (place - half > clear) {
        this.words(name, place, y0 - this.px(12), {
          align: "center", colour: this.colours.ink, size: 12, bold: true,
        });
        clear = place + half;
      }
      marks.push([band.start, count(band.start)], [band.end, count(band.end)]);
    }
    this.frontiers(marks, at, y1);
    if (this.view) {
      const [start, end] = this.view;
      ctx.strokeStyle = this.colours.accent;
      ctx.lineWidth = this.px(2);
      const left = at(start) - this.px(1);
      const wide = Math.max(this.px(3), at(end) - at(start) + this.px(2));
      ctx.strokeRect(left, y0 - this.px(3), wide, y1 - y0 + this.px(6));
    }
  }

  frontiers(marks, at, y) {
    // A tick at every frontier with its offset in bytes; offsets take a free row, or none.
    const ctx = this.ctx;
    const ends = [-Infinity, -Infinity, -Infinity];
    const seen = new Set();
    const sorted = marks.slice().sort((a, b) => a[0] - b[0]);
    for (const [address, text] of sorted) {
      if (seen.has(address)) continue;
      seen.add(address);
      const x = Math.round(at(address));
      ctx.fillStyle = this.colours.ink;
      ctx.fillRect(x - Math.round(this.ratio / 2), y, Math.max(1, Math.round(this.ratio)), this.px(6));
      ctx.font = `${this.px(11)}px ui-monospace, "DejaVu Sans Mono", monospace`;
      const wide = ctx.measureText(text).width;
      const left = Math.min(Math.max(x - wide / 2, this.px(2)), this.canvas.width - wide - this.px(2));
      const row = ends.findIndex((end) => left > end + this.px(6));
      if (row < 0) continue;
      ends[row] = left + wide;
      this.words(text, left, y + this.px(18 + 14 * row), { colour: this.colours.ink });
    }
  }

  bracket(index, x0, x1, y) {
    // A line along a band; bands differ by their dashes.
    const ctx = this.ctx;
    ctx.strokeStyle = this.colours.ink;
    ctx.lineWidth = Math.max(1, this.px(2));
    const unit = this.px(3);
    ctx.setLineDash([[], [unit * 2, unit], [unit / 1.5, unit / 1.5], [unit * 3, unit, unit, unit]][index % 4]);
    ctx.beginPath();
    ctx.moveTo(x0, y);
    ctx.lineTo(Math.max(x0 + 1, x1), y);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  drawLines() {
    const { layout } = this.data;
    const [start, end] = this.window();
    const wrap = this.lineBytes(end - start);
    const x0 = this.px(layout.left);
    const x1 = this.px(this.wide - layout.right);
    const told = this.data.columns && start >= this.data.window[0] && end <= this.data.window[1];
    const named = new Set();
    for (let line = 0; line < layout.lines; line += 1) {
      const low = start + line * wrap;
      if (low >= end) break;
      const high = Math.min(end, low + wrap);
      const y0 = this.px(this.lineTop(line));
      const y1 = this.px(this.lineTop(line) + layout.line_height);
      const at = (address) => x0 + ((x1 - x0) * (address - low)) / wrap;
      this.words(count(low), x0 - this.px(8), y0 + this.px(16), { align: "right" });
      const box = Math.round(at(high));
      this.ctx.strokeStyle = this.colours.line;
      this.ctx.lineWidth = Math.max(1, Math.round(this.ratio));
      this.ctx.strokeRect(x0 - 0.5, y0 - 0.5, box - x0 + 1, y1 - y0 + 1);
      if (told) this.drawUnits(low, high, at, y0, y1);
      else this.pixels(low, high - low, x0, box, y0, y1);
      this.nameBands(low, high, at, y1, named);
    }
  }

  drawUnits(low, high, at, y0, y1) {
    for (const [start, end] of this.data.fences) {
      if (start < high && end > low) {
        this.cell(5, Math.round(at(Math.max(start, low))), Math.round(at(Math.min(end, high))), y0, y1);
      }
    }
    for (const column of this.columns) {
      const { origin, unit_bytes: size } = column.band;
      const from = Math.max(0, Math.floor((low - origin) / size) - column.first);
      const to = Math.min(column.states.length, Math.ceil((high - origin) / size) - column.first);
      for (let at_ = from; at_ < to; at_ += 1) {
        const start = origin + (column.first + at_) * size;
        const x0 = Math.round(at(Math.max(start, low)));
        let x1 = Math.round(at(Math.min(start + size, high)));
        if (x1 - x0 > 3 * this.ratio && start + size <= high) x1 -= Math.round(this.ratio);
        this.cell(column.states[at_], x0, Math.max(x1, x0 + 1), y0, y1);
        if (column.flags[at_] & 11 && x1 - x0 >= 3) {
          // Pinned, quarantined or under a transfer: it may not move.
          this.ctx.fillStyle = this.colours.ink;
          this.ctx.fillRect(x0, y0, x1 - x0, this.px(4));
        }
      }
    }
  }

  nameBands(low, high, at, y, named) {
    for (const [index, band] of this.data.bands.entries()) {
      if (band.end <= low || band.start >= high || band.end <= band.start) continue;
      const x0 = at(Math.max(band.start, low));
      const x1 = at(Math.min(band.end, high));
      this.bracket(index, x0, x1, y + this.px(4));
      const wide = this.px(7.2) * band.name.length;
      if (!named.has(index) && x1 - x0 > wide) {
        named.add(index);
        this.ctx.clearRect(x0 - 1, y + this.px(2), wide + this.px(4), this.px(4));
        this.words(band.name, x0, y + this.px(11), { colour: this.colours.ink });
      }
    }
  }

  spans(start, end) {
    // Rectangles [x0, x1, y0, y1] in device pixels of these bytes, one a line.
    const { layout } = this.data;
    const [low, high] = this.window();
    const wrap = this.lineBytes(high - low);
    const x0 = this.px(layout.left);
    const x1 = this.px(this.wide - layout.right);
    const found = [];
    for (let line = 0; line < layout.lines; line += 1) {
      const from = low + line * wrap;
      const to = Math.min(high, from + wrap);
      if (from >= high || start >= to || end <= from) continue;
      const at = (address) => x0 + ((x1 - x0) * (address - from)) / wrap;
      found.push([
        Math.round(at(Math.max(start, from))),
        Math.max(Math.round(at(Math.min(end, to))), Math.round(at(Math.max(start, from))) + 2),
        this.px(this.lineTop(line)),
        this.px(this.lineTop(line) + layout.line_height),
      ]);
    }
    return found;
  }

  drawMoves() {
    const ctx = this.ctx;
    for (const move of this.data.moves) {
      const [source] = this.spans(...move.source);
      const [target] = this.spans(...move.target);
      if (!source || !target) continue;
      const [ax, ay] = [(source[0] + source[1]) / 2, (source[2] + source[3]) / 2];
      const [bx, by] = [(target[0] + target[1]) / 2, (target[2] + target[3]) / 2];
      const bend = this.px(18);
      const [mx, my] = [(ax + bx) / 2, (ay + by) / 2 - bend];
      ctx.globalAlpha = 0.15 + 0.85 * move.strength;
      ctx.strokeStyle = this.colours.ink;
      ctx.fillStyle = this.colours.ink;
      ctx.lineWidth = this.px(1.5);
      ctx.beginPath();
      ctx.moveTo(ax, ay);
      ctx.quadraticCurveTo(mx, my, bx, by);
      ctx.stroke();
      const angle = Math.atan2(by - my, bx - mx);
      const head = this.px(6);
      ctx.beginPath();
      ctx.moveTo(bx, by);
      for (const turn of [2.6, -2.6]) {
        ctx.lineTo(bx + head * Math.cos(angle + turn), by + head * Math.sin(angle + turn));
      }
      ctx.fill();
      ctx.globalAlpha = 1;
    }
  }

  drawFrames() {
    const frame = (extent, colour, dash) => {
      const ctx = this.ctx;
      ctx.setLineDash(dash);
      ctx.strokeStyle = colour;
      ctx.lineWidth = this.px(2);
      for (const [x0, x1, y0, y1] of this.spans(...extent)) {
        ctx.strokeRect(x0 - this.px(1), y0 - this.px(2), x1 - x0 + this.px(1), y1 - y0 + this.px(4));
      }
      ctx.setLineDash([]);
    };
    if (this.data.mark) frame(this.data.mark, this.colours.accent, []);
    if (this.data.picked) frame(this.data.picked, this.colours.ink, []);
    if (this.cursor !== null) {
      const place = this.placeAt(this.cursor);
      frame(place.extent, this.colours.ink, [this.px(3), this.px(2)]);
    }
    if (this.drag && this.drag.to !== null) {
      const ends = [this.drag.from, this.drag.to].sort((a, b) => a - b);
      frame([ends[0], ends[1] + 1], this.colours.accent, [this.px(4), this.px(3)]);
    }
  }

  // -- what is where, in words
  placeAt(address) {
    const data = this.data;
    for (const [index, band] of data.bands.entries()) {
      if (address < band.start || address >= band.end) continue;
      const unit = Math.floor((address - band.origin) / band.unit_bytes);
      const start = band.origin + unit * band.unit_bytes;
      return { index, band, unit, extent: [start, start + band.unit_bytes] };
    }
    for (const [start, end] of data.fences) {
      if (address >= start && address < end) return { fenced: true, extent: [start, end] };
    }
    const edges = [0, data.arena_bytes];
    for (const band of data.bands) if (band.end > band.start) edges.push(band.start, band.end);
    for (const [start, end] of data.fences) edges.push(start, end);
    const low = Math.max(...edges.filter((edge) => edge <= address));
    const high = Math.min(...edges.filter((edge) => edge > address));
    return { extent: [low, high] };
  }

  linesAt(address) {
    const data = this.data;
    const place = this.placeAt(address);
    const [start, end] = place.extent;
    const where = `bytes ${count(start)} to ${count(end)}`;
    if (!place.band) {
      const state = place.fenced ? 5 : 0;
      const what = place.fenced ? "fence" : "gap";
      return [`${what}: ${data.states[state]}, ${data.meanings[state]}`, where];
    }
    const name = `${place.band.name} unit ${count(place.unit)}`;
    const column = this.columns.find(
      (each) => each.index === place.index && place.unit >= each.first
        && place.unit < each.first + each.states.length,
    );
    if (!column) return [name, where, `worst state here: ${data.states[this.worst(start, end)]}`];
    const at = place.unit - column.first;
    const state = column.states[at];
    const lines = [`${name}: ${data.states[state]}, ${data.meanings[state]}`, where];
    const id = column.ids[at];
    if (id > 0n) {
      const held = column.holders[at];
      lines.push(`id ${id}, generation ${id >> 36n}, ${held} holder${held === 1 ? "" : "s"}`);
    }
    const flags = column.flags[at];
    const fixed = [[1, "pinned"], [8, "under a transfer"], [2, "quarantined"]]
      .filter(([bit]) => flags & bit).map(([, word]) => word);
    if (fixed.length) lines.push(`may not move: ${fixed.join(", ")}`);
    const uses = this.usesOf(place.index, place.unit);
    lines.push(...uses.slice(0, 4));
    if (uses.length > 4) lines.push(`and ${uses.length - 4} more uses`);
    return lines;
  }

  usesOf(band, unit) {
    const inside = (runs) => runs.some(
      ([index, first, units]) => index === band && unit >= first && unit < first + units,
    );
    const found = [];
    for (const use of this.data.uses) {
      const verbs = [];
      if (inside(use.reads)) verbs.push("reads");
      if (inside(use.writes)) verbs.push("writes");
      if (verbs.length) found.push(`${use.text} ${verbs.join(" and ")} it`);
    }
    return found;
  }

  legend() {
    const list = this.root.querySelector(".om-legend");
    if (list.childElementCount) return;
    for (const [state, name] of this.data.states.entries()) {
      const item = document.createElement("li");
      item.className = `om-state om-${name}`;
      item.title = this.data.meanings[state];
      item.textContent = name;
      list.append(item);
    }
  }

  // -- what a user does
  listen() {
    const canvas = this.canvas;
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = point(event);
      const address = this.addressAt(x, y);
      if (this.drag) {
        if (address !== null) this.drag.to = address;
        this.draw();
      }
      this.hover(address, x, y);
    });
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("pointerdown", (event) => {
      const [x, y] = point(event);
      const from = this.addressAt(x, y);
      if (from === null || event.button) return;
      this.drag = { from, to: null, x, y };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => this.release(...point(event)));
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls as ever
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.5 : 2, this.addressAt(...point(event)));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => { this.cursor = null; this.draw(); });
    for (const button of this.root.querySelectorAll("button")) {
      button.addEventListener("click", () => this.press(button.dataset.act));
    }
    new ResizeObserver(() => { if (this.data) this.draw(); }).observe(this.root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  hover(address, x = 0, y = 0) {
    if (address === null) {
      this.tip.hidden = true;
      return;
    }
    this.tip.textContent = this.linesAt(address).join("\n");
    this.tip.hidden = false;
    const left = Math.min(x + 14, this.wide - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    const below = y + 18 + this.tip.offsetHeight > this.data.layout.height;
    this.tip.style.top = `${this.canvas.offsetTop + (below ? y - this.tip.offsetHeight - 8 : y + 18)}px`;
  }

  release(x, y) {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (drag.to !== null && Math.hypot(x - drag.x, y - drag.y) > 5) {
      const [low, high] = [drag.from, drag.to].sort((a, b) => a - b);
      this.look([low, high + 1]);
    } else {
      this.pick(drag.from);
    }
  }

  pick(address) {
    this.tell("picked", address);
    if (address !== null) this.say.textContent = this.linesAt(address).join(". ");
  }

  press(act) {
    const [start, end] = this.window();
    const half = Math.floor((end - start) / 2);
    if (act === "in") this.zoom(0.5, this.cursor);
    else if (act === "out") this.zoom(2, this.cursor);
    else if (act === "all") this.look(null);
    else if (act === "left") this.look([start - half, end - half]);
    else if (act === "right") this.look([start + half, end + half]);
  }

  zoom(factor, around) {
    const [start, end] = this.window();
    const size = Math.max(128, Math.round((end - start) * factor));
    const middle = around === null || around === undefined ? (start + end) / 2 : around;
    const share = (middle - start) / (end - start);
    this.look([middle - share * size, middle - share * size + size]);
  }

  look(view) {
    const size = this.data.arena_bytes;
    let wanted = null;
    if (view) {
      const length = Math.min(size, Math.max(128, Math.round(view[1] - view[0])));
      const start = Math.min(Math.max(0, Math.round(view[0])), size - length);
      if (length < size) wanted = [start, start + length];
    }
    this.view = wanted;
    this.draw();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.tell("view", wanted), 200);
  }

  key(event) {
    const [start, end] = this.window();
    const at = this.cursor === null ? start : this.cursor;
    const [low, high] = this.placeAt(at).extent;
    const wrap = this.lineBytes(end - start);
    const moves = {
      ArrowRight: this.cursor === null ? at : high,
      ArrowLeft: low - 1,
      ArrowDown: at + wrap,
      ArrowUp: at - wrap,
    };
    if (event.key in moves) {
      this.cursor = Math.min(Math.max(start, moves[event.key]), end - 1);
      this.say.textContent = this.linesAt(this.cursor).join(". ");
      this.draw();
    } else if (event.key === "+" || event.key === "=") this.press("in");
    else if (event.key === "-") this.press("out");
    else if (event.key === "0" || event.key === "Home") this.press("all");
    else if (event.key === "Enter" && this.cursor !== null) this.pick(this.cursor);
    else if (event.key === "Escape") this.pick(null);
    else return;
    event.preventDefault();
  }
}
