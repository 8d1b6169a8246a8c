// How the memory is: numbers, suspects, and the memories with their search.

const STANDINGS = {
  full: ["full weight", "counts in full"],
  reduced: ["reduced", "0.5 and more, below 1"],
  weakened: ["weakened", "0.1 and more, below 0.5"],
  forgotten: ["forgotten", "below 0.1"],
  deleted: ["deleted", "softly: kept, never retrieved"],
};
const PORTION = 30;
const SUSPECT_PORTION = 10;
const MOST_WORDS = 12;

function renderHeader(data) {
  document.title = `${oneLine(data.bank.collection, 60)}: memory report`;
  $("bank").replaceChildren(...visible(data.bank.collection));
  $("sentence").textContent = data.headline.sentence;
  const scope = data.bank.scope ? [", of ", code(data.bank.scope), " only"] : [];
  $("dateline").replaceChildren("As of ", moment(data.made_at), ...scope);
  const { advice, tone } = data.headline;
  const panel = element("ol", { class: `advice tone-${tone}` }, advice.map((one) => {
    const link = one.section && element("a", { href: `#${one.section}` }, `Go to ${one.section}`);
    return element("li", {}, element("p", {}, visible(one.text), link && " ", link), one.command && commandLine(one.command, one.text));
  }));
  $("advice").replaceChildren(...(advice.length ? [element("h2", { class: "next" }, "What to do next"), panel] : []));
  $("count-suspects").textContent = whole(data.counts.suspects);
  $("count-memories").textContent = whole(data.counts.memories);
  $("count-repairs").textContent = whole(data.repairs.length);
}

function renderGlance(data) {
  const counts = data.counts;
  const parts = ["full", "reduced", "weakened", "forgotten"].filter((name) => counts[name] > 0);
  const bar = element("div", { class: "spread", "aria-hidden": "true" }, parts.map((name) => {
    const part = element("span", { class: name });
    part.style.flexGrow = counts[name];
    return part;
  }));
  const bands = element("ul", { class: "bands" }, Object.entries(STANDINGS).filter(([name]) => name !== "deleted" || counts.deleted).map(([name, [label, what]]) =>
    element("li", {}, element("span", { class: `dot ${name}`, "aria-hidden": "true" }), element("strong", {}, whole(counts[name])), ` ${label} `, element("span", { class: "soft" }, what))));
  const facts = [
    ["Mean weight", number(counts.mean_weight)],
    ["Written by dreams", counts.derived, "derived memories"],
    ["Retrieval keys", counts.keys, "further texts that find a memory"],
    ["Connections", counts.edges, "that dreams wrote"],
    ["Runs in the journal", Object.values(counts.runs).reduce((sum, one) => sum + one, 0)],
    counts.quarantined && ["In quarantine", counts.quarantined, "no sweep has seen them yet"],
    counts.trusted && ["Trusted", counts.trusted, "somebody looked at them: no sweep lowers them"],
    counts.orphans && ["Gone", counts.orphans, "removed from the collection; their state waits"],
  ].filter(Boolean);
  const list = element("dl", { class: "facts" }, facts.map(([label, value, what]) =>
    element("div", {}, element("dt", {}, label), element("dd", {}, typeof value === "number" ? whole(value) : value, what && element("span", { class: "soft small" }, what)))));
  $("glance").replaceChildren(bar, bands, list);
}

function weightBar(weight) {
  const level = element("span");
  level.style.width = `${Math.max(0, Math.min(1, weight)) * 100}%`;
  return element("span", { class: "meter", "aria-hidden": "true" }, level);
}

function renderSuspects(data, memory) {
  const holder = $("suspect-list");
  if (!data.suspects.length) {
    const swept = data.counts.runs.sweep;
    holder.replaceChildren(element("p", { class: "empty" }, swept ? "None. No memory is doubted." : "None yet: no sweep has looked at this memory."));
    return;
  }
  inPortions(holder, data.suspects, SUSPECT_PORTION, (suspect) => suspectCard(suspect, memory.get(suspect.id)));
}

function suspectCard(suspect, memory) {
  const before = suspect.weight_before;
  const facts = [
    element("span", {}, "weight ", before !== null && number(before) !== number(suspect.weight) ? `${number(before)} → ` : "", element("strong", {}, number(suspect.weight))),
    element("span", {}, "suspicion ", element("strong", {}, number(suspect.suspicion))),
    suspect.at !== null && element("span", {}, `${suspect.by} of `, moment(suspect.at)),
    ...Object.entries(suspect.terms).map(([name, value]) => element("span", { title: "score of this term of the sweep" }, visible(name), ` ${number(value)}`)),
  ];
  const word = memory ? memory.word : "";
  return element("article", { class: "card suspect", tabindex: "-1" },
    element("h3", {}, weightBar(suspect.weight), code(suspect.id)),
    memory && quoted(memory.text),
    memory && fields(memory),
    element("p", { class: "reason" }, element("strong", {}, "Why: "), element("span", { dir: "auto" }, visible(suspect.reason))),
    element("p", { class: "numbers" }, facts),
    doing("restore", word, suspect.id, `Give ${oneLine(suspect.id, 40)} its full weight back`),
    doing("explain", word, suspect.id, `Judge ${oneLine(suspect.id, 40)} anew`));
}

function fields(memory, found = null) {
  const rows = Object.entries(memory.metadata);
  return rows.length > 0 && element("dl", { class: "fields" }, rows.map(([key, value]) =>
    element("div", {}, element("dt", {}, visible(key)), element("dd", { dir: "auto" }, visible(value, found)))));
}

// what the search looks at, without the characters that hide a word
const bare = (text) => text.normalize("NFKC").replace(HIDDEN, "").toLocaleLowerCase("en");
const haystack = (memory) => bare([memory.id, memory.text.text, ...Object.entries(memory.metadata).flat()].join("\n"));

function renderMemories(data) {
  const stacks = new Map();
  const passes = {
    all: () => true,
    suspect: (memory) => memory.suspect,
    lowered: (memory) => memory.weight < 1 && memory.standing !== "deleted",
    derived: (memory) => memory.derived,
    deleted: (memory) => memory.standing === "deleted",
    waiting: (memory) => memory.waiting,
    trusted: (memory) => memory.trusted,
  };
  const show = () => {
    const words = bare($("search").value).split(/\s+/).filter(Boolean).slice(0, MOST_WORDS);
    const kind = $("filter").value;
    const found = data.memories.filter((memory) => {
      if (!passes[kind](memory)) return false;
      if (words.length && !stacks.has(memory.id)) stacks.set(memory.id, haystack(memory));
      return words.every((word) => stacks.get(memory.id).includes(word));
    });
    const marked = words.length ? new RegExp(words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "giu") : null;
    const every = data.counts.memories + data.counts.deleted;
    const held = some(data.memories.length, "memory", "memories");
    const of = data.memories.length < every ? `${held} on this page, of ${whole(every)} in the bank` : held;
    $("found").textContent = words.length || kind !== "all" ? `${whole(found.length)} found among ${of}` : `${of}: suspects first, then what dreams touched, then the newest`;
    inPortions($("memory-list"), found, PORTION, (memory) => memoryRow(memory, marked));
    page.highlight(words.length || kind !== "all" ? new Set(found.map((memory) => memory.id)) : null);
  };
  $("search").oninput = show;
  $("filter").onchange = show;
  $("finder").onsubmit = (event) => event.preventDefault();
  show();
}

function badges(memory) {
  return [
    !["full", "reduced"].includes(memory.standing) && element("span", { class: `badge ${memory.standing}` }, STANDINGS[memory.standing][0]),
    memory.suspect && element("span", { class: "badge suspect" }, "suspect"),
    memory.derived && element("span", { class: "badge derived" }, "written by a dream"),
    memory.waiting && element("span", { class: "badge" }, "in quarantine"),
    memory.trusted && element("span", { class: "badge", title: "somebody restored it as it is: no sweep lowers it" }, "trusted"),
  ];
}

function memoryRow(memory, found) {
  const line = element("span", { class: "line", dir: "auto" }, visible(oneLine(memory.text.text, 160), found));
  const summary = element("summary", {}, weightBar(memory.weight), element("span", { class: "unseen" }, `weight ${number(memory.weight)}`), line, element("span", { class: "badges" }, badges(memory)));
  const row = element("details", { class: "memory" }, summary);
  row.addEventListener("toggle", () => {
    if (row.open && row.children.length === 1) row.append(memoryDetails(memory, found));
  });
  return row;
}

function memoryDetails(memory, found = null) {
  const facts = [
    ["weight", number(memory.weight)],
    ["suspicion", number(memory.suspicion)],
    ["consolidation", number(memory.consolidation)],
    ["retrieved", some(memory.retrievals, "time")],
    memory.last_access !== null && ["last retrieved", moment(memory.last_access)],
    memory.keys > 0 && ["found by", some(memory.keys, "further key")],
  ].filter(Boolean);
  const known = new Map(page.data.memories.map((one) => [one.id, one]));
  return element("div", { class: "inside" },
    quoted(memory.text, found),
    element("p", { class: "numbers" }, code(memory.id, found), facts.map(([label, value]) => element("span", {}, `${label} `, element("strong", {}, value)))),
    fields(memory, found),
    memory.sources.length > 0 && element("div", {}, element("h4", {}, "It quotes"), element("ul", { class: "quotes" }, memory.sources.map((id) => {
      const source = known.get(id);
      return element("li", {}, code(id), source ? element("span", { dir: "auto" }, " ", visible(oneLine(source.text.text, 120))) : element("span", { class: "soft" }, " not on this page"));
    }))),
    (memory.standing !== "full" || memory.suspect) && doing("restore", memory.word, memory.id, `Give ${oneLine(memory.id, 40)} its full weight back`),
    memory.trusted && doing("distrust", memory.word, memory.id, `Let sweeps judge ${oneLine(memory.id, 40)} again`),
    doing("explain", memory.word, memory.id, `Judge ${oneLine(memory.id, 40)} anew`));
}
