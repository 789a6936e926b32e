
// Decisions in the browser: kept, shared by tabs, and found again.

// What people said of rows: name of a row -> { label, when, open }. The label is null if the row
// is skipped, or open again. The browser keeps each row by itself under the table's own name, so
// that two tabs do not write over each other's rows; of one row the latest word counts.
class Memory {
  constructor(key, changed) {
    this.place = `robustpll-review-${key}`;
    this.keeps = true;
    this.rows = new Map();
    this.changed = changed; // called with the names of rows that another tab changed
    this.reread();
    this.attempt(() => {
      localStorage.setItem("robustpll-probe", "1");
      localStorage.removeItem("robustpll-probe");
    });
    addEventListener("storage", (event) => this.heard(event));
    addEventListener("pageshow", (event) => event.persisted && this.changed(this.reread()));
  }

  attempt(act) {
    try {
      return act();
    } catch {
      this.keeps = false;
      return null;
    }
  }

  // All that is stored; the names of rows that are news.
  reread() {
    const read = () => {
      const stored = Object.keys(localStorage).filter((key) => key.startsWith(`${this.place}/`));
      const rows = stored.map((key) => [this.name(key), parsed(localStorage.getItem(key))]);
      return [...this.merge(rows), ...this.takeOver(localStorage.getItem(this.place))];
    };
    return this.attempt(read) ?? [];
  }

  // Version 0.1 kept all rows in one list.
  takeOver(list) {
    const news = this.merge(listed(list));
    for (const name of news) this.save(name);
    return news;
  }

  name(key) {
    return key.slice(this.place.length + 1);
  }

  merge(rows) {
    const news = rows.filter(([name, said]) => said !== null && later(said, this.rows.get(name)));
    for (const [name, said] of news) this.rows.set(name, said);
    return news.map(([name]) => name);
  }

  heard({ key, newValue }) {
    if (newValue === null || !key.startsWith(this.place)) return;
    if (key === this.place) {
      this.changed(this.takeOver(newValue));
    } else if (key.startsWith(`${this.place}/`)) {
      const [name, said] = [this.name(key), parsed(newValue)];
      this.changed(this.merge([[name, said]]));
      const ours = this.rows.get(name);
      if (ours && (said === null || later(ours, said))) this.save(name); // it was written over
    }
  }

  get(name) {
    const said = this.rows.get(name);
    return said && !said.open ? said : null;
  }

  // As `get`, after a look at what other tabs stored: their message may be on its way.
  fresh(name) {
    this.attempt(() => this.merge([[name, parsed(localStorage.getItem(this.key(name)))]]));
    return this.get(name);
  }

  // Says something of a row, or that it is open again, later than all before; what it was before.
  set(name, label, open = false) {
    const before = this.fresh(name);
    const least = this.rows.has(name) ? Date.parse(this.rows.get(name).when) + 1 : 0;
    const when = new Date(Math.max(Date.now(), least)).toISOString();
    this.rows.set(name, { label, when, open });
    this.save(name);
    return before;
  }

  key(name) {
    return `${this.place}/${name}`;
  }

  save(name) {
    const { label, when, open } = this.rows.get(name);
    this.attempt(() => localStorage.setItem(this.key(name), JSON.stringify([label, when, open])));
  }

  state(name) {
    const said = this.get(name);
    if (said === null) return "open";
    return said.label === null ? "skipped" : "decided";
  }

  decisions() {
    return [...this.rows].filter(([name]) => this.state(name) === "decided");
  }
}

// What was stored of a row; null where that makes no sense.
function parsed(text) {
  try {
    return valid(JSON.parse(text));
  } catch {
    return null;
  }
}

function valid(stored) {
  if (!Array.isArray(stored)) return null;
  const [label, when, open = false] = stored;
  const dated = typeof when === "string" && !Number.isNaN(Date.parse(when));
  const named = label === null || typeof label === "string";
  return dated && named ? { label, when, open: open === true } : null;
}

// The rows in a list of version 0.1.
function listed(text) {
  try {
    const rows = JSON.parse(text ?? "[]").filter(Array.isArray);
    return rows.map(([name, label, when]) => [String(name), valid([label, when])]);
  } catch {
    return [];
  }
}

// Whether one word is later than another; of the same moment all tabs choose the same one.
function later(one, other) {
  if (!other) return true;
  const apart = Date.parse(one.when) - Date.parse(other.when);
  const [a, b] = [one, other].map(({ label, open }) => JSON.stringify([label, open]));
  return apart > 0 || (apart === 0 && a > b);
}
