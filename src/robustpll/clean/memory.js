
// Decisions in the browser's storage, shared by all tabs.

// Key of a row -> what was said about it: { kind, label, when, open, … }. The kind is "label",
// "cannot tell", "exclude" or "skip"; `open` tells that the row is open again. Each row is stored
// under its own key, so that two tabs do not overwrite each other's rows. The latest counts.
class Memory {
  constructor(key, changed) {
    this.place = `robustpll-decisions-${key}`;
    this.keeps = true;
    this.rows = new Map();
    this.changed = changed; // called with the keys of rows that another tab changed
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

  // Read all stored rows, and return the keys of those that changed.
  reread() {
    const read = () => {
      const stored = Object.keys(localStorage).filter((key) => key.startsWith(`${this.place}/`));
      return this.merge(stored.map((key) => [this.name(key), parsed(localStorage.getItem(key))]));
    };
    return this.attempt(read) ?? [];
  }

  // Version 0.1 stored all rows of a table in one list, by the names of rows.
  takeOver(table, recordOf) {
    const list = this.attempt(() => localStorage.getItem(`robustpll-review-${table}`));
    const rows = listed(list).map(([name, kind, label, when]) => {
      const [key, said] = recordOf(name, kind, label) ?? [];
      return [key, said ? { ...said, when } : null];
    });
    const news = this.merge(rows);
    for (const key of news) this.save(key);
  }

  name(place) {
    return place.slice(this.place.length + 1);
  }

  merge(rows) {
    const news = rows.filter(([key, said]) => said !== null && later(said, this.rows.get(key)));
    for (const [key, said] of news) this.rows.set(key, said);
    return news.map(([key]) => key);
  }

  heard({ key: place, newValue }) {
    if (newValue === null || !place.startsWith(`${this.place}/`)) return;
    const [key, said] = [this.name(place), parsed(newValue)];
    this.changed(this.merge([[key, said]]));
    const ours = this.rows.get(key);
    if (ours && (said === null || later(ours, said))) this.save(key); // it was overwritten
  }

  get(key) {
    const said = this.rows.get(key);
    return said && !said.open ? said : null;
  }

  // As `get`, but with what other tabs have stored: their message may not have arrived yet.
  fresh(key) {
    this.attempt(() => this.merge([[key, parsed(localStorage.getItem(`${this.place}/${key}`))]]));
    return this.get(key);
  }

  // Store a decision, or that the row is open again, later than all before; return the previous one.
  set(key, said) {
    const before = this.fresh(key);
    const least = this.rows.has(key) ? Date.parse(this.rows.get(key).when) + 1 : 0;
    const when = new Date(Math.max(Date.now(), least)).toISOString();
    this.rows.set(key, { ...said, when });
    this.save(key);
    return before;
  }

  save(key) {
    const said = JSON.stringify(this.rows.get(key));
    this.attempt(() => localStorage.setItem(`${this.place}/${key}`, said));
  }

  state(key) {
    const said = this.get(key);
    if (said === null) return "open";
    return said.kind === "skip" ? "skipped" : "decided";
  }

  decisions() {
    return [...this.rows].filter(([key]) => this.state(key) === "decided");
  }

  // The rows that were accepted at once: [key, when] of each. They stay until they are undone.
  get batch() {
    const stored = this.attempt(() => localStorage.getItem(`${this.place}-batch`));
    try {
      const pairs = JSON.parse(stored ?? "[]");
      return pairs.filter((pair) => Array.isArray(pair) && pair.length === 2);
    } catch {
      return [];
    }
  }

  set batch(pairs) {
    this.attempt(() => localStorage.setItem(`${this.place}-batch`, JSON.stringify(pairs)));
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

const KINDS = ["label", "cannot tell", "exclude", "skip"];
const TEXTS = ["row", "table", "id", "by", "cells"];

function valid(said) {
  if (said === null || typeof said !== "object" || !KINDS.includes(said.kind)) return null;
  const dated = typeof said.when === "string" && !Number.isNaN(Date.parse(said.when));
  const named = said.kind !== "label" || typeof said.label === "string";
  const texts = TEXTS.every((name) => typeof said[name] === "string");
  return dated && named && texts ? { ...said, open: said.open === true } : null;
}

// The rows in a list of version 0.1.
function listed(text) {
  try {
    const rows = JSON.parse(text ?? "[]").filter(Array.isArray);
    const dated = rows.filter(([, , when]) => !Number.isNaN(Date.parse(when)));
    return dated.map(([name, label, when]) => {
      const named = typeof label === "string";
      return [String(name), named ? "label" : "skip", named ? label : "", when];
    });
  } catch {
    return [];
  }
}

// Whether one decision is later than another; of the same moment all tabs choose the same one.
function later(one, other) {
  if (!other) return true;
  const apart = Date.parse(one.when) - Date.parse(other.when);
  const [a, b] = [one, other].map(({ kind, label, open }) => JSON.stringify([kind, label, open]));
  return apart > 0 || (apart === 0 && a > b);
}
