// Sorts, filters and pages every table.sortable, and opens the details of rows.
// All text is inserted as text nodes, so that none can become markup.
"use strict";

const collator = new Intl.Collator("en", { numeric: true });

function make(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Rows that are in the page. Sorting compares the data-value of a cell, if it has one.
function writtenRows(table) {
  return [...table.rows]
    .filter((row) => row.parentNode.tagName === "TBODY")
    .map((row) => ({
      values: [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent.trim()),
      words: row.textContent.toLowerCase(),
      body: row.parentNode,
      node: () => row,
    }));
}

// Rows in a block of JSON; each is drawn when it is first shown.
function storedRows(table, stored) {
  const columns = stored.columns.flatMap((column, index) => (column.in_table ? [index] : []));
  return stored.rows.map((row, index) => {
    const texts = columns.map((column) => written(row[column], stored.columns[column]));
    let node = null;
    return {
      values: columns.map((column) => row[column]),
      words: texts.join(" ").toLowerCase(),
      body: table.tBodies[0],
      node: () => (node ??= opening(stored, index, columns)),
    };
  });
}

function written(value, { decimals }) {
  if (value === null) return "–";
  return decimals === null ? String(value) : value.toFixed(decimals);
}

function numeric({ decimals }) {
  return decimals === null ? {} : { class: "number" };
}

function drawn(stored, row, columns) {
  const cells = columns.map((index) => {
    const column = stored.columns[index];
    return make("td", numeric(column), written(row[index], column));
  });
  return make("tr", {}, ...cells);
}

// A row whose details open on a click anywhere, or from the keyboard by the button in it.
function opening(stored, index, columns) {
  const row = drawn(stored, stored.rows[index], columns);
  const first = row.cells[0];
  first.append(make("button", { type: "button", class: "open" }, ...first.childNodes));
  row.className = "opens";
  row.addEventListener("click", () => {
    const marking = !getSelection().isCollapsed; // text is being selected
    if (!marking) openDetails(stored, stored.opens[index]);
  });
  return row;
}

function openDetails(stored, number) {
  const [title, parts] = stored.details[number];
  const close = make("button", { type: "button" }, "Close");
  const heading = make("h2", { id: "details-title" }, title);
  const dialog = make("dialog", { "aria-labelledby": heading.id });
  dialog.append(make("div", {}, make("header", {}, heading, close), detailRows(stored, number)));
  for (const [name, fact] of parts) {
    dialog.firstChild.append(make("h3", {}, name), factList(stored.facts[fact]));
  }
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside its content
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal(); // holds the focus, closes on Escape, and gives the focus back
}

// All rows that open the same details, in the columns that have values there.
function detailRows(stored, number) {
  const rows = stored.rows.filter((_, index) => stored.opens[index] === number);
  const columns = stored.columns.flatMap((column, index) =>
    column.in_details && rows.some((row) => row[index] !== null) ? [index] : [],
  );
  const heads = columns.map((index) => {
    const column = stored.columns[index];
    return make("th", { scope: "col", ...numeric(column) }, column.title);
  });
  const head = make("thead", {}, make("tr", {}, ...heads));
  const body = make("tbody", {}, ...rows.map((row) => drawn(stored, row, columns)));
  return make("div", { class: "wide" }, make("table", {}, head, body));
}

function factList(facts) {
  const pairs = Object.entries(facts).map(([name, value]) => {
    const text = value instanceof Object ? JSON.stringify(value) : String(value ?? "–");
    return make("div", {}, make("dt", {}, name), make("dd", {}, text));
  });
  return make("dl", { class: "facts" }, ...pairs);
}

class LiveTable {
  constructor(table) {
    const stored = document.getElementById(table.dataset.rows ?? "");
    this.table = table;
    this.rows = stored ? storedRows(table, JSON.parse(stored.textContent)) : writtenRows(table);
    this.heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    this.page = Number(table.dataset.page ?? Infinity);
    this.first = 0;
    this.sorted = { column: null, down: false };
    this.words = [];
    this.chosen = new Map();
    this.heads.forEach((head, column) => this.addSorting(head, column));
    if (this.heads.some((head) => "choose" in head.dataset)) this.addFilters();
    if (this.rows.length > this.page) this.addPages();
    if (stored || this.pages) this.show();
  }

  // Highest number first, or first letter first; then the reverse; then the order of the page.
  addSorting(head, column) {
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const downFirst = this.isNumber(column);
      const { column: before, down } = this.sorted;
      if (before !== column) this.sorted = { column, down: downFirst };
      else if (down === downFirst) this.sorted = { column, down: !down };
      else this.sorted = { column: null, down: false };
      const words = this.sorted.down ? "descending" : "ascending";
      this.heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (this.sorted.column !== null) head.setAttribute("aria-sort", words);
      this.show();
    });
  }

  addFilters() {
    const find = make("input", { type: "search" });
    find.addEventListener("input", () => {
      this.words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.show();
    });
    const tools = make("div", { class: "tools", role: "search" }, make("label", {}, "Find ", find));
    this.heads.forEach((head, column) => {
      if ("choose" in head.dataset) tools.append(this.choice(head, column));
    });
    this.count = make("output", {});
    tools.append(this.count);
    this.table.parentNode.before(tools);
    this.tell(this.rows.length);
  }

  choice(head, column) {
    const values = [...new Set(this.rows.map((row) => row.values[column]))]; // in the page's order
    const options = ["all", ...values].map((value) => make("option", {}, value ?? "–"));
    const select = make("select", {}, ...options);
    select.addEventListener("change", () => {
      if (select.selectedIndex) this.chosen.set(column, values[select.selectedIndex - 1]);
      else this.chosen.delete(column);
      this.show();
    });
    return make("label", {}, `${head.textContent} `, select);
  }

  addPages() {
    this.back = make("button", { type: "button" }, "Previous");
    this.next = make("button", { type: "button" }, "Next");
    this.range = make("span", { "aria-live": "polite" });
    for (const [button, step] of [[this.back, -1], [this.next, 1]]) {
      button.addEventListener("click", () => this.show(this.first + step * this.page));
    }
    this.pages = make("nav", { class: "tools", "aria-label": "Pages of the table" });
    this.pages.append(this.back, this.range, this.next);
    this.table.parentNode.after(this.pages);
  }

  isNumber(column) {
    return this.heads[column].classList.contains("number");
  }

  matches(row) {
    for (const [column, value] of this.chosen) if (row.values[column] !== value) return false;
    return this.words.every((word) => row.words.includes(word));
  }

  // Missing values come last in either direction.
  compare(one, other) {
    const { column, down } = this.sorted;
    const [a, b] = [one.values[column], other.values[column]];
    const sign = down ? -1 : 1;
    if (!this.isNumber(column)) return sign * collator.compare(a ?? "", b ?? "");
    const [x, y] = [a, b].map((value) => (value === null || value === "" ? NaN : Number(value)));
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return sign * (x - y);
  }

  show(first = 0) {
    const matching = this.rows.filter((row) => this.matches(row));
    if (this.sorted.column !== null) matching.sort((one, other) => this.compare(one, other));
    this.first = first;
    const shown = matching.slice(first, first + this.page);
    for (const body of this.table.tBodies) {
      body.replaceChildren(...shown.filter((row) => row.body === body).map((row) => row.node()));
    }
    this.tell(matching.length, shown.length);
  }

  tell(matching, shown = matching) {
    const all = this.rows.length;
    const few = matching === all ? "" : `${matching} of `;
    if (this.count) this.count.textContent = `${few}${all} rows`;
    if (!this.pages) return;
    this.pages.hidden = matching <= this.page;
    this.range.textContent = `${this.first + 1} to ${this.first + shown} of ${matching}`;
    this.back.disabled = this.first === 0;
    this.next.disabled = this.first + shown >= matching;
  }
}

document.querySelectorAll("table.sortable").forEach((table) => new LiveTable(table));
