
// The review page: people decide one row at a time, and download their decisions as a file.
// A row is [name, kind, reason, doubt, resolved, uncertainty, options, cells, picture], an option
// [class, is a candidate, belief, probability, votes]. Needs table.js (for `make`) and memory.js.

const HEIGHT = 52; // pixels of a row in the list, as in the style sheet
const SPARE = 8; // rows drawn above and below the visible ones

const byId = (name) => document.getElementById(name);
const percent = (share) => `${Math.round(100 * share)} %`;
const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
// A spreadsheet may take such text for a formula: it gets an apostrophe, which `read_decisions` removes.
const computed = (text) => /^'*[=+\-@＝＋－＠\t\r\n]./s.test(text) && Number.isNaN(Number(text));
const safe = (text) => (computed(text) ? `'${text}` : text);

class Review {
  constructor(data) {
    this.data = data;
    this.memory = new Memory(data.key, (names) => this.changedElsewhere(names));
    this.rows = data.rows.map((row, rank) => this.read(row, rank));
    this.shown = this.rows;
    this.current = null;
    this.undone = []; // [row, its state before] of each decision, the latest last
    this.mine = new Map(); // name of a row -> the last decision about it in this tab
    this.sought = ""; // the text that rows are filtered by
    this.drawn = new Map(); // row -> its element in the list
    this.fillLabels();
    this.listen();
    this.refresh();
    this.go(this.shown.find((row) => this.memory.state(row.name) === "open") ?? this.shown[0]);
  }

  read([name, kind, reason, doubt, resolved, unsure, options, cells, picture], rank) {
    const { classes } = this.data;
    const named = options.map(([label]) => classes[label]);
    const words = [name, kind, reason, ...named, ...cells].join(" ").toLowerCase();
    const label = classes[resolved];
    return { name, kind, reason, doubt, label, unsure, options, cells, picture, rank, words };
  }

  fillLabels() {
    const labels = [...new Set(this.rows.map((row) => row.label))].sort(collator.compare);
    byId("label").append(...labels.map((label) => make("option", { value: label }, label)));
  }

  refresh() {
    this.sought = byId("find").value;
    const words = this.sought.toLowerCase().split(/\s+/).filter(Boolean);
    const [state, kind, label] = ["state", "kind", "label"].map((name) => byId(name).value);
    this.shown = this.rows.filter(
      (row) =>
        (state === "all" || this.memory.state(row.name) === state) &&
        (!kind || row.kind === kind) &&
        (!label || row.label === label) &&
        words.every((word) => row.words.includes(word)),
    );
    const orders = {
      worth: (a, b) => a.rank - b.rank,
      doubt: (a, b) => b.doubt - a.doubt || a.rank - b.rank,
      row: (a, b) => collator.compare(a.name, b.name),
      label: (a, b) => collator.compare(a.label, b.label) || a.rank - b.rank,
      unsure: (a, b) => b.unsure - a.unsure || a.rank - b.rank,
    };
    this.shown.sort(orders[byId("sort").value]);
    this.shown.forEach((row, place) => (row.place = place));
    const few = this.shown.length === this.rows.length ? "" : `${this.shown.length} of `;
    byId("found").textContent = `${few}${this.rows.length} rows`;
    byId("list").style.height = `${this.shown.length * HEIGHT}px`;
    this.drawList(true);
    this.tally();
  }

  isShown(row) {
    return row !== null && this.shown[row.place] === row;
  }

  // Only visible rows are in the page, so that ten thousand scroll like ten.
  drawList(anew = false) {
    const [list, scroller] = [byId("list"), byId("scroller")];
    if (anew) {
      list.replaceChildren();
      this.drawn.clear();
    }
    const first = Math.max(0, Math.floor(scroller.scrollTop / HEIGHT) - SPARE);
    const last = Math.ceil((scroller.scrollTop + scroller.clientHeight) / HEIGHT) + SPARE;
    const wanted = this.shown.slice(first, last);
    for (const [row, node] of this.drawn) {
      if (row.place < first || row.place >= last) {
        node.remove();
        this.drawn.delete(row);
      }
    }
    for (const row of wanted) {
      if (!this.drawn.has(row)) {
        this.drawn.set(row, this.item(row));
        list.append(this.drawn.get(row));
      }
    }
    if (this.isShown(this.current)) list.setAttribute("aria-activedescendant", "item-current");
    else list.removeAttribute("aria-activedescendant");
  }

  item(row) {
    const state = this.memory.state(row.name);
    const chosen = this.memory.get(row.name)?.label ?? row.label;
    const marks = { open: "", decided: "✓", skipped: "–" };
    const words = { open: `${row.label}?`, decided: chosen, skipped: `${row.label}? (skipped)` };
    const node = make(
      "div",
      {
        role: "option",
        class: `item ${state}`,
        "aria-selected": String(row === this.current),
        "aria-setsize": this.shown.length,
        "aria-posinset": row.place + 1,
      },
      make("span", { class: "mark", "aria-hidden": "true" }, marks[state]),
      make("span", { class: "name" }, words[state]),
      make("span", { class: "share", title: "doubt" }, percent(row.doubt)),
      make("span", { class: "small" }, `row ${row.name} · ${row.kind}`),
    );
    if (row === this.current) node.id = "item-current";
    node.style.top = `${row.place * HEIGHT}px`;
    node.addEventListener("click", () => this.go(row));
    return node;
  }

  tally() {
    const decided = this.rows.filter((row) => this.memory.state(row.name) === "decided").length;
    byId("done").value = decided;
    byId("tally").textContent = `${decided} of ${this.rows.length}`;
    byId("undo").disabled = this.undone.length === 0;
    byId("download").disabled = this.memory.decisions().length === 0;
    if (!this.memory.keeps) {
      byId("warning").textContent =
        "This browser does not keep decisions: download them before you close the page.";
      byId("warning").hidden = false;
    }
  }

  go(row) {
    this.current = row ?? null;
    if (this.isShown(this.current)) this.bringIntoSight();
    this.drawList(true);
    this.drawCard();
  }

  bringIntoSight() {
    const scroller = byId("scroller");
    const top = this.current.place * HEIGHT;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    const bottom = top + HEIGHT - scroller.clientHeight;
    if (bottom > scroller.scrollTop) scroller.scrollTop = bottom;
  }

  step(by) {
    if (!this.shown.length) return;
    const place = this.isShown(this.current) ? this.current.place + by : 0;
    this.go(this.shown[Math.min(Math.max(place, 0), this.shown.length - 1)]);
  }

  drawCard() {
    const [card, row] = [byId("card"), this.current];
    if (row === null) {
      const text = this.rows.length ? "No row matches the filter." : "No row needs a person.";
      card.replaceChildren(make("h2", { id: "card-title", class: "empty" }, text));
      return;
    }
    const why = make("p", { class: "why" }, make("span", { class: "chip" }, row.kind), row.reason);
    const face = make("div", { class: "face" });
    const picture = this.picture(row);
    if (picture) face.append(picture);
    face.append(this.choices(row));
    const title = make("h2", { id: "card-title" }, `Row ${row.name}`);
    card.replaceChildren(title, why, face, this.others(row), this.cells(row));
    card.scrollTop = 0;
  }

  picture(row) {
    const [small, link, fault] = row.picture;
    if (!link) return fault ? make("p", { class: "muted" }, `No picture: ${fault}`) : null;
    const about = { href: link, target: "_blank", rel: "noopener" };
    const words = `picture of row ${row.name}`;
    if (small) return make("figure", {}, make("a", about, make("img", { src: small, alt: words })));
    return make("p", {}, make("a", about, `Open the ${words}`));
  }

  choices(row) {
    const chosen = this.memory.get(row.name)?.label;
    const list = make("ol", { class: "options", "aria-label": "Classes to choose from" });
    const heads = ["", "", "belief", "probability", ""].map((text) => make("span", {}, text));
    heads[3].className = "number";
    list.append(make("li", { class: "heads", "aria-hidden": "true" }, ...heads));
    row.options.forEach(([label, inside, belief, probability, votes], at) => {
      const name = this.data.classes[label];
      const note = inside ? (this.data.voted ? counted(votes) : "") : "no candidate";
      const key = at < 9 ? make("kbd", {}, String(at + 1)) : make("span", {});
      const button = make(
        "button",
        { type: "button", "aria-pressed": String(chosen === name) },
        key,
        make("span", { class: "name" }, name),
        bar(belief, "belief"),
        make("span", { class: "number" }, percent(probability)),
        make("span", { class: "note" }, note),
      );
      button.addEventListener("click", () => this.decide(name));
      list.append(make("li", {}, button));
    });
    const unsure = make("li", { class: "unsure" }, make("span", {}));
    unsure.append(make("span", {}, "uncertain"), bar(row.unsure, "uncertainty"));
    unsure.append(make("span", { class: "number" }), make("span", {}));
    list.append(unsure);
    return list;
  }

  others(row) {
    const first = make("option", { value: "" }, "choose …");
    const names = this.data.classes.map((name) => make("option", { value: name }, name));
    const select = make("select", { id: "other" }, first, ...names);
    const chosen = this.memory.get(row.name)?.label;
    const offered = row.options.map(([label]) => this.data.classes[label]);
    if (chosen && !offered.includes(chosen)) select.value = chosen;
    select.addEventListener("change", () => {
      if (select.value) this.decide(select.value);
      byId("list").focus({ preventScroll: true });
    });
    const skip = make("button", { type: "button" }, "Skip ", make("kbd", {}, "s"));
    skip.addEventListener("click", () => this.decide(null));
    const label = make("label", {}, "Another class ", make("kbd", {}, "o"), select);
    return make("div", { class: "other" }, label, skip);
  }

  cells(row) {
    const facts = this.data.columns.map((name, at) => {
      const value = row.cells[at] === "" ? "–" : row.cells[at];
      return make("div", {}, make("dt", {}, name), make("dd", {}, value));
    });
    if (!facts.length) return "";
    const list = make("dl", { class: "facts" }, ...facts);
    return make("section", { class: "cells" }, make("h3", {}, "In the table"), list);
  }

  decide(label) {
    const row = this.current;
    if (row === null) return;
    const at = this.isShown(row) ? row.place : 0;
    this.undone.push([row, this.speak(row, label)]);
    this.refresh();
    this.say(label === null ? `Row ${row.name} skipped` : `Row ${row.name}: ${label}`);
    this.go(this.nextOpen(this.isShown(row) ? at + 1 : at));
  }

  // Store a decision and return the previous one.
  speak(row, label, open = false) {
    const before = this.memory.set(row.name, label, open);
    this.mine.set(row.name, this.memory.get(row.name));
    return before;
  }

  // The next open row from a position on, else the first open row.
  nextOpen(from) {
    const open = (row) => this.memory.state(row.name) === "open";
    const found = this.shown.slice(from).find(open) ?? this.shown.find(open);
    return found ?? this.shown[Math.min(from, this.shown.length - 1)];
  }

  undo() {
    const last = this.undone.pop();
    if (!last) return;
    const [row, before] = last;
    const ours = this.memory.fresh(row.name) === this.mine.get(row.name);
    if (ours) this.speak(row, before?.label ?? null, before === null);
    this.refresh();
    this.say(`Row ${row.name}: ${ours ? "undone" : "changed in another tab, so nothing is undone"}`);
    this.go(row);
  }

  changedElsewhere(names) {
    if (!names.length) return;
    this.refresh();
    if (names.includes(this.current?.name)) this.drawCard();
  }

  say(words) {
    byId("said").textContent = `${words}. ${byId("tally").textContent} decided.`;
  }

  download() {
    if (byId("download").disabled) return;
    const lines = this.memory
      .decisions()
      .sort(([, a], [, b]) => Date.parse(a.when) - Date.parse(b.when))
      .map(([name, { label, when }]) => [name, safe(label), when, this.data.key].map(quoted).join(","));
    const text = ["row,decision,when,table", ...lines, ""].join("\n");
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    make("a", { href: address, download: "decisions.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
    this.say(`${lines.length} decisions downloaded`);
  }

  listen() {
    for (const name of ["state", "kind", "label", "sort"]) {
      byId(name).addEventListener("change", () => this.filtered());
    }
    // depending on the browser, Esc and the cross clear the box with one or another of these
    for (const kind of ["input", "search", "change"]) {
      byId("find").addEventListener(kind, () => byId("find").value !== this.sought && this.filtered());
    }
    byId("why")?.addEventListener("click", () => byId("keys").showModal());
    byId("scroller").addEventListener("scroll", () => this.drawList(), { passive: true });
    addEventListener("resize", () => this.drawList());
    byId("undo").addEventListener("click", () => this.undo());
    byId("download").addEventListener("click", () => this.download());
    byId("help").addEventListener("click", () => byId("keys").showModal());
    byId("keys-close").addEventListener("click", () => byId("keys").close());
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  filtered() {
    byId("scroller").scrollTop = 0;
    this.refresh();
    this.go(this.isShown(this.current) ? this.current : this.shown[0]);
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    if (event.target.matches("input, select")) {
      if (event.key === "Escape" || (event.key === "Enter" && event.target.matches("input"))) {
        byId("list").focus({ preventScroll: true });
      }
      return;
    }
    const act = this.actOf(event.key);
    if (!act) return;
    event.preventDefault();
    act();
  }

  actOf(key) {
    if (/^[1-9]$/.test(key)) {
      const option = this.current?.options[Number(key) - 1];
      return option ? () => this.decide(this.data.classes[option[0]]) : null;
    }
    const acts = {
      s: () => this.decide(null),
      j: () => this.step(1),
      ArrowDown: () => this.step(1),
      k: () => this.step(-1),
      ArrowUp: () => this.step(-1),
      Home: () => this.step(-Infinity),
      End: () => this.step(Infinity),
      PageDown: () => this.step(10),
      PageUp: () => this.step(-10),
      u: () => this.undo(),
      d: () => this.download(),
      o: () => byId("other")?.focus(),
      "/": () => byId("find").focus(),
      "?": () => byId("keys").showModal(),
    };
    return acts[key] ?? null;
  }
}

function counted(votes) {
  return votes === 1 ? "1 vote" : `${votes} votes`;
}

function bar(share, what) {
  const fill = make("i", {});
  fill.style.width = `${100 * share}%`;
  const words = `${what} ${percent(share)}`;
  return make("span", { class: "bar", role: "img", "aria-label": words, title: words }, fill);
}

new Review(JSON.parse(byId("review").textContent));
