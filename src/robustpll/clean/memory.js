
// Decisions in the browser's storage, shared by all tabs.

// Name of a row -> { label, when, open }. The label is null if the row is skipped or open again.
// Each row is stored under its own key, so that two tabs do not overwrite each other's rows. The
// latest decision about a row counts.
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

  // Read all stored rows, and return the names of those that changed.
  reread() {
    const read = () => {
      const stored = Object.keys(localStorage).filter((key) => key.startsWith(`${this.place}/`));
      const rows = stored.map((key) => [this.name(key), parsed(localStorage.getItem(key))]);
      return [...this.merge(rows), ...this.takeOver(localStorage.getItem(this.place))];
    };
    return this.attempt(read) ?? [];
  }

  // Version 0.1 stored all rows in one list.
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
      if (ours && (said === null || later(ours, said))) this.save(name); // it was overwritten
    }
  }

  get(name) {
    const said = this.rows.get(name);
    return said && !said.open ? said : null;
  }

  // As `get`, but with what other tabs have stored: their message may not have arrived yet.
  fresh(name) {
    this.attempt(() => this.merge([[name, parsed(localStorage.getItem(this.key(name)))]]));
    return this.get(name);
  }

  // Store a decision, or that the row is open again, later than all before; return the previous one.
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

// The stored decision about a row; null if it is damaged.
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

// Whether one decision is later than another; of the same moment all tabs choose the same one.
function later(one, other) {
  if (!other) return true;
  const apart = Date.parse(one.when) - Date.parse(other.when);
  const [a, b] = [one, other].map(({ label, open }) => JSON.stringify([label, open]));
  return apart > 0 || (apart === 0 && a > b);
}
