
// The review page: people decide one row at a time, and download their decisions as a file.
// `data.fields` names the parts of a row, see page.py. An option is [class, is a candidate, belief,
// probability]. Needs table.js (for `make`) and memory.js.

const HEIGHT = 52; // pixels of a row in the list, as in the style sheet
const SPARE = 8; // rows drawn above and below the visible ones
const FEATURES = 12; // shown at first; the others are folded
const LONG = 120; // characters: longer cells are shown as text, below each other
const [TINY, SIDE, LARGE_SIDE] = [64, 192, 384]; // pixels of a small picture, and of its enlargement
const HEAD = ["row", "decision", "when", "table", "kind", "id", "content", "reviewer", "round", "cells"];

const byId = (name) => document.getElementById(name);
const percent = (share) => `${Math.round(100 * share)} %`;
const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
// A spreadsheet may take such text for a formula: it gets an apostrophe, which `read_decisions` removes.
const computed = (text) => /^'*[=+\-@＝＋－＠\t\r\n]./s.test(text) && Number.isNaN(Number(text));
const safe = (text) => (computed(text) ? `'${text}` : text);
const keyed = (key, words) => [words, " ", make("kbd", {}, key)];

// A decimal number with four significant digits; whole numbers and words stay as they are.
function short(text) {
  const [plain, comma] = [text.replace(",", "."), /^[^.]*,[^.]*$/.test(text)];
  if (!/^[+-]?(\d+\.\d*|\.\d+|\d+(?=e))(e[+-]?\d+)?$/i.test(plain)) return text;
  const [number, size] = [Number(plain), Math.abs(Number(plain))];
  const rounded = size >= 1e4 && size < 1e15 ? Math.round(number) : Number(number.toPrecision(4));
  const words = comma ? String(rounded).replace(".", ",") : String(rounded);
  return words.length <= text.length ? words : text;
}

// A picture; each pixel of a small one is shown as a square. `side` is the least length of its longer side.
function picture(source, words, side = 0) {
  const image = make("img", { src: source, alt: words });
  image.addEventListener("load", () => {
    const longest = Math.max(image.naturalWidth, image.naturalHeight);
    if (longest <= TINY) image.className = "tiny";
    if (longest < side) image.style.width = `${image.naturalWidth * Math.ceil(side / longest)}px`;
  });
  return image;
}

class Review {
  constructor(data) {
    this.data = data;
    this.rows = data.rows.map((row, rank) => this.read(row, rank));
    this.memory = new Memory(data.key, (keys) => this.changedElsewhere(keys));
    this.snapshots = new Map(this.rows.map((row) => [row.key, row.snapshot]));
    const named = new Map(this.rows.map((row) => [row.name, row]));
    this.memory.takeOver(data.table, (name, kind, label) => {
      const row = named.get(name);
      return row ? [row.key, this.record(row, kind, label)] : null;
    });
    this.shown = this.rows;
    this.current = null;
    this.undone = []; // [row, its state before] of each decision, null for many; the latest last
    this.mine = new Map(); // key of a row -> the last decision about it in this tab
    this.large = false; // whether pictures and texts are in full size
    this.sought = ""; // the text that rows are filtered by
    this.drawn = new Map(); // row -> its element in the list
    this.fillLabels();
    byId("reviewer").value = this.memory.attempt(() => localStorage.getItem("robustpll-reviewer")) ?? "";
    this.listen();
    this.refresh();
    this.go(this.shown.find((row) => this.memory.state(row.key) === "open") ?? this.shown[0]);
  }

  read(values, rank) {
    const { classes, fields } = this.data;
    const row = Object.fromEntries(fields.map((name, at) => [name, values[at]]));
    row.key = row.round === 1 ? row.content : `${row.content}/${row.round}`;
    row.label = classes[row.resolved];
    row.unnamed = !row.options.some(([label, inside]) => inside && label === row.leading);
    const named = row.options.map(([label]) => classes[label]);
    const texts = row.cells.map(([, text]) => text);
    row.words = [row.name, row.kind, row.reason, ...named, ...texts].join(" ").toLowerCase();
    return Object.assign(row, { rank });
  }

  // What is stored with each decision about a row, so that it survives changes of the table.
  record({ name, id, snapshot }, kind, label = "") {
    const by = byId("reviewer").value.trim();
    return { kind, label, open: false, row: name, table: this.data.table, id, cells: snapshot, by };
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
        (state === "all" || this.memory.state(row.key) === state) &&
        (!kind || row.kind === kind) &&
        (!label || row.label === label) &&
        words.every((word) => row.words.includes(word)),
    );
    const orders = {
      worth: (a, b) => a.rank - b.rank,
      doubt: (a, b) => a.confidence - b.confidence || a.rank - b.rank,
      row: (a, b) => collator.compare(a.name, b.name),
      label: (a, b) => collator.compare(a.label, b.label) || a.rank - b.rank,
      unsure: (a, b) => b.unsure - a.unsure || a.rank - b.rank,
    };
    this.shown.sort(orders[byId("sort").value]);
    this.shown.forEach((row, place) => (row.place = place));
    const few = this.shown.length === this.rows.length ? "" : `${this.shown.length} of `;
    byId("found").textContent = few + counted(this.rows.length, "row");
    byId("list").style.height = `${this.shown.length * HEIGHT}px`;
    this.drawList(true);
    this.tally();
    this.offerAll();
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
    const state = this.memory.state(row.key);
    const said = this.memory.get(row.key);
    const chosen = said === null || said.kind === "skip" ? row.label : decisionOf(said);
    const marks = { open: "", decided: "✓", skipped: "–" };
    const words = { open: `${row.label}?`, decided: chosen, skipped: `${row.label}? (skipped)` };
    const option = row.options.find(([label]) => this.data.classes[label] === chosen);
    const share = chosen === row.label ? row.confidence : option?.[3];
    const about = row.unnamed && state === "open" ? `looks like ${this.data.classes[row.leading]}` : row.kind;
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
      make("span", { class: "share", title: `probability of ${chosen}` }, share === undefined ? "" : percent(share)),
      make("span", { class: "small" }, `row ${row.name} · ${about}`),
    );
    if (row === this.current) node.id = "item-current";
    node.style.top = `${row.place * HEIGHT}px`;
    node.addEventListener("click", () => this.go(row));
    return node;
  }

  tally() {
    const decided = this.rows.filter((row) => this.memory.state(row.key) === "decided").length;
    byId("done").value = decided;
    byId("tally").textContent = `${decided} of ${this.rows.length}`;
    byId("undo").disabled = this.undone.length === 0;
    byId("download").disabled = this.memory.decisions().length === 0;
    const accepted = this.memory.batch.length;
    byId("unaccept").hidden = accepted === 0;
    byId("unaccept").textContent = `Undo accepting ${accepted}`;
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
    this.offerAll();
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
    const title = make("h2", { id: "card-title" }, [`Row ${row.name}`, row.id].filter(Boolean).join(" · "));
    const sides = make("div", { class: "sides" }, this.answers(row), this.similar(row));
    const parts = [this.headline(row), why, this.said(row), face, this.others(row), sides];
    card.replaceChildren(title, ...parts, ...this.cells(row));
    card.scrollTop = 0;
    if (card.getBoundingClientRect().top < 0) card.scrollIntoView(); // on a narrow screen
  }

  headline(row) {
    const name = make("b", {}, this.data.classes[row.leading]);
    const [before, after] = row.unnamed ? ["Looks like ", ", which nobody named"] : ["Probably ", ""];
    const same = row.same > 1 ? ` ${row.same} equal rows share this decision.` : "";
    return make("p", { id: "headline" }, before, name, ` (${percent(row.lead)})${after}.${same}`);
  }

  // Who said what before, and how the row has changed since.
  said(row) {
    if (!row.said.length) return "";
    const people = row.said.map(([reviewer, decision, date]) =>
      make("li", {}, `${reviewer}: `, make("b", {}, decision), ` on ${date}`));
    const part = make("section", { class: "said" }, make("h3", {}, "Decided before"), make("ul", {}, ...people));
    if (row.versions.length) {
      const rows = row.versions.map((texts) => {
        const changed = texts[1] !== texts[2] ? { class: "changed" } : {};
        return make("tr", changed, ...texts.map((text, at) => make(at ? "td" : "th", {}, text || "–")));
      });
      part.append(table(["", "before", "now"], rows));
      if (row.versions.every(([, before, now]) => before === now)) {
        part.append(make("p", { class: "muted" }, "What changed is not among these cells."));
      }
    }
    return part;
  }

  picture(row) {
    const [small, link, fault, large] = row.picture;
    if (!link) return fault ? make("p", { class: "muted" }, `No picture: ${fault}`) : null;
    const about = { href: link, target: "_blank", rel: "noopener" };
    const words = `picture of row ${row.name}`;
    if (!small) return make("p", {}, make("a", about, `Open the ${words}`));
    const image = picture((this.large && large) || small, words, this.large ? LARGE_SIDE : SIDE);
    const toggle = { type: "button", id: "picture", "aria-pressed": String(this.large), title: "full size (f)" };
    const button = make("button", toggle, image);
    button.addEventListener("click", () => this.resize(true));
    const caption = make("figcaption", {}, make("a", about, "open the file"));
    return make("figure", { class: this.large ? "large" : "" }, button, caption);
  }

  resize(focus = false) {
    this.large = !this.large;
    this.drawCard();
    if (focus) byId("picture")?.focus({ preventScroll: true });
  }

  choices(row) {
    const said = this.memory.get(row.key);
    const list = make("ol", { class: "options", "aria-label": "Classes to choose from" });
    const people = this.data.annotators.length > 0;
    const heads = ["", "", "probability", "", people ? "answers" : "", "features alone"];
    list.append(make("li", { class: "heads", "aria-hidden": "true" }, ...heads.map((text) => make("span", {}, text))));
    row.options.forEach(([label, inside, belief, probability], at) => {
      const name = this.data.classes[label];
      const votes = row.answers.filter(([, answer]) => answer === label).length;
      const note = inside ? (people ? counted(votes, "vote") : "") : people ? "no vote" : "not a candidate";
      const key = at < 9 ? make("kbd", {}, String(at + 1)) : make("span", {});
      const button = make(
        "button",
        { type: "button", "aria-pressed": String(said?.kind === "label" && said.label === name) },
        key,
        make("span", { class: "name" }, name),
        bar(probability, "probability"),
        make("span", { class: "number", "aria-hidden": "true" }, percent(probability)),
        make("span", { class: "note" }, note),
        alone(belief),
      );
      button.addEventListener("click", () => this.decide("label", name));
      list.append(make("li", {}, button));
    });
    const unsure = make("li", { class: "unsure" }, make("span", {}), make("span", {}, "undecided"));
    unsure.append(make("span", {}), make("span", {}), make("span", {}), alone(row.unsure));
    const seen = people ? "answers" : "candidates";
    const weighed = people ? ", and counts reliable annotators more" : "";
    const legend = `“Features alone” is a model that did not see this row's ${seen}; where it lacks evidence, it is undecided. The probability combines it with the ${seen}${weighed}.`;
    list.append(unsure, make("li", { class: "legend" }, legend));
    return list;
  }

  others(row) {
    const first = make("option", { value: "" }, "choose …");
    const names = this.data.classes.map((name) => make("option", { value: name }, name));
    const select = make("select", { id: "other" }, first, ...names);
    const said = this.memory.get(row.key);
    const offered = row.options.map(([label]) => this.data.classes[label]);
    if (said?.kind === "label" && !offered.includes(said.label)) select.value = said.label;
    select.addEventListener("change", () => {
      if (select.value) this.decide("label", select.value);
      byId("list").focus({ preventScroll: true });
    });
    const label = make("label", {}, "Another class ", make("kbd", {}, "o"), select);
    const acts = [["c", "cannot tell", "Cannot tell"], ["x", "exclude", "Exclude"], ["s", "skip", "Skip"]];
    const buttons = acts.map(([key, kind, words]) => {
      const pressed = { type: "button", "aria-pressed": String(said?.kind === kind) };
      const button = make("button", pressed, ...keyed(key, words));
      button.addEventListener("click", () => this.decide(kind));
      return button;
    });
    return make("div", { class: "other" }, label, ...buttons);
  }

  // The answer of each annotator, and how often the annotator agrees with the others.
  answers(row) {
    if (!row.answers.length) return "";
    const people = row.answers.map(([annotator, label]) => [...this.data.annotators[annotator], label]);
    people.sort((a, b) => (b[1] ?? 0) - (a[1] ?? 0));
    const rows = people.map(([name, reliability, label]) => {
      const share = reliability === null ? "–" : percent(reliability);
      const cells = [make("td", {}, this.data.classes[label]), make("td", { class: "number" }, share)];
      return make("tr", {}, make("th", { scope: "row" }, name), ...cells);
    });
    const part = make("section", { class: "answers" }, make("h3", {}, "Answers"));
    part.append(table(["annotator", "answer", "reliability"], rows));
    return part;
  }

  similar(row) {
    if (!row.similar.length) return "";
    const features = row.cells.filter(([column]) => column >= this.data.notes);
    const names = features.slice(0, row.similar[0][1].length).map(([column]) => this.data.columns[column]);
    const rows = row.similar.map(([position, texts]) => {
      const [name, label, confidence, decided, small] = this.data.resolved[position];
      const by = decided ? "by a person" : percent(confidence);
      const head = make("th", { scope: "row" }, `row ${name}`);
      if (small) head.append(picture(small, `picture of row ${name}`));
      const cells = [make("td", {}, make("b", {}, this.data.classes[label])), make("td", { class: "number" }, by)];
      const features = texts.map((text) => make("td", { class: "feature" }, short(text) || "–"));
      return make("tr", {}, head, ...cells, ...features);
    });
    const part = make("section", { class: "similar" }, make("h3", {}, "Similar rows that are resolved"));
    part.append(table(["", "label", "probability", ...names], rows));
    return part;
  }

  // Long texts in full, then notes and the features that tell the likely classes apart.
  cells(row) {
    const isText = ([, text]) => text.length > LONG || text.includes("\n");
    const texts = row.cells.filter(isText).map(([column, text]) => {
      const words = make("p", { class: this.large ? "text large" : "text", tabindex: "0" }, text);
      return make("section", { class: "cells" }, make("h3", {}, this.data.columns[column]), words);
    });
    const facts = row.cells.filter((cell) => !isText(cell));
    const notes = facts.filter(([column]) => column < this.data.notes);
    const features = facts.slice(notes.length);
    const list = (cells) =>
      make("dl", { class: "facts" }, ...cells.map(([column, text]) =>
        make("div", {}, make("dt", {}, this.data.columns[column]),
          make("dd", { title: text }, column < this.data.notes ? text || "–" : short(text) || "–"))));
    if (!facts.length) return texts;
    const part = make("section", { class: "cells" }, make("h3", {}, "In the table"));
    part.append(list([...notes, ...features.slice(0, FEATURES)]));
    const rest = features.slice(FEATURES);
    if (rest.length) part.append(make("details", {}, make("summary", {}, `${rest.length} more features`), list(rest)));
    return [...texts, part];
  }

  decide(kind, label = "") {
    const row = this.current;
    if (row === null) return;
    const at = this.isShown(row) ? row.place : 0;
    this.undone.push([row, this.speak(row, this.record(row, kind, label))]);
    this.refresh();
    this.say(`Row ${row.name}${kind === "skip" ? " skipped" : `: ${decisionOf({ kind, label })}`}`);
    this.go(this.nextOpen(this.isShown(row) ? at + 1 : at));
  }

  // Store a decision and return the previous one.
  speak(row, said) {
    const before = this.memory.set(row.key, said);
    this.mine.set(row.key, this.memory.get(row.key));
    return before;
  }

  // Open rows of the list whose label may be accepted unseen: no conflict, and someone named it.
  acceptable() {
    const open = this.shown.filter((row) => this.memory.state(row.key) === "open");
    return open.filter((row) => !row.said.length && !row.unnamed);
  }

  offerAll(sure = false) {
    const [button, count] = [byId("accept"), this.acceptable().length];
    button.disabled = count === 0;
    button.classList.toggle("sure", sure);
    button.replaceChildren(...keyed("a", sure ? `Really accept ${count}?` : `Accept all ${count} labels`));
  }

  // The first call asks, the second accepts.
  acceptAll() {
    if (byId("accept").disabled) return;
    if (!byId("accept").classList.contains("sure")) {
      this.offerAll(true);
      byId("said").textContent = `${byId("accept").textContent}: once more to accept these labels`;
      return;
    }
    const rows = this.acceptable();
    const batch = rows.map((row) => {
      this.speak(row, { ...this.record(row, "label", row.label), cells: "" }); // storage is scarce
      return [row.key, this.memory.get(row.key).when];
    });
    this.memory.batch = batch;
    this.undone = [...this.undone.filter((entry) => entry !== null), null];
    this.refresh();
    this.say(`${counted(rows.length, "label")} accepted`);
    this.go(this.nextOpen(0));
  }

  // Open the rows again that were accepted at once, unless someone has decided them since.
  unaccept() {
    const batch = this.memory.batch;
    const same = batch.filter(([key, when]) => this.memory.fresh(key)?.when === when);
    for (const [key] of same) this.memory.set(key, { ...this.memory.get(key), open: true });
    this.memory.batch = [];
    this.undone = this.undone.filter((entry) => entry !== null);
    this.refresh();
    this.say(`${counted(same.length, "row")} open again`);
    this.go(this.isShown(this.current) ? this.current : this.shown[0]);
  }

  // The next open row from a position on, else the first open row.
  nextOpen(from) {
    const open = (row) => this.memory.state(row.key) === "open";
    const found = this.shown.slice(from).find(open) ?? this.shown.find(open);
    return found ?? this.shown[Math.min(from, this.shown.length - 1)];
  }

  undo() {
    if (!this.undone.length) return;
    if (this.undone.at(-1) === null) {
      this.unaccept();
      return;
    }
    const [row, before] = this.undone.pop();
    const now = this.memory.fresh(row.key);
    const ours = now === this.mine.get(row.key);
    if (ours) this.speak(row, before ?? { ...now, open: true });
    this.refresh();
    this.say(`Row ${row.name}: ${ours ? "undone" : "changed in another tab, so nothing is undone"}`);
    this.go(row);
  }

  changedElsewhere(keys) {
    if (!keys.length) return;
    this.refresh();
    if (keys.includes(this.current?.key)) this.drawCard();
  }

  say(words) {
    byId("said").textContent = `${words}. ${byId("tally").textContent} decided.`;
  }

  download() {
    if (byId("download").disabled) return;
    const lines = this.memory
      .decisions()
      .sort(([, a], [, b]) => Date.parse(a.when) - Date.parse(b.when))
      .map(([key, { row, kind, label, when, table, id, cells, by }]) => {
        const [content, round = "1"] = key.split("/");
        const reviewer = by || byId("reviewer").value.trim();
        const decision = kind === "label" ? safe(label) : "";
        const seen = cells || this.snapshots.get(key) || "{}";
        const texts = [row, decision, when, table, kind, safe(id), content, safe(reviewer), round, seen];
        return texts.map(quoted).join(",");
      });
    const text = [HEAD.join(","), ...lines, ""].join("\n");
    // spreadsheets recognise UTF-8 by the byte order mark
    const address = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    make("a", { href: address, download: "decisions.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
    this.say(`${counted(lines.length, "decision")} downloaded`);
  }

  listen() {
    for (const name of ["state", "kind", "label", "sort"]) {
      byId(name).addEventListener("change", () => this.filtered());
    }
    // depending on the browser, Esc and the cross clear the box with one or another of these
    for (const kind of ["input", "search", "change"]) {
      byId("find").addEventListener(kind, () => byId("find").value !== this.sought && this.filtered());
    }
    byId("reviewer").addEventListener("change", () => {
      const name = byId("reviewer").value.trim();
      this.memory.attempt(() => localStorage.setItem("robustpll-reviewer", name));
    });
    byId("accept").addEventListener("click", () => this.acceptAll());
    byId("accept").addEventListener("blur", () => this.offerAll());
    byId("unaccept").addEventListener("click", () => this.unaccept());
    byId("why")?.addEventListener("click", () => {
      byId("keys").showModal();
      byId("others").scrollIntoView();
    });
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
      return option ? () => this.decide("label", this.data.classes[option[0]]) : null;
    }
    const acts = {
      c: () => this.decide("cannot tell"),
      x: () => this.decide("exclude"),
      s: () => this.decide("skip"),
      a: () => this.acceptAll(),
      f: () => this.resize(),
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

// A decision in words.
function decisionOf({ kind, label }) {
  return kind === "label" ? label : kind === "exclude" ? "excluded" : kind;
}

// A table; columns after the first `most` are features, for which a narrow screen has no room.
function table(heads, rows, most = 3) {
  const cell = (text, at) => make("th", { scope: "col", class: at < most ? "" : "feature" }, text);
  const head = make("tr", {}, ...heads.map(cell));
  const whole = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { class: "wide" }, whole);
}

function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

// What the model says without the candidates; a narrow screen and a screen reader repeat the head.
function alone(share) {
  return make("span", { class: "note alone" }, make("span", { class: "unseen" }, "features alone "), percent(share));
}

function bar(share, what) {
  const fill = make("i", {});
  fill.style.width = `${100 * share}%`;
  const words = `${what} ${percent(share)}`;
  return make("span", { class: "bar", role: "img", "aria-label": words, title: words }, fill);
}

new Review(JSON.parse(byId("review").textContent));
