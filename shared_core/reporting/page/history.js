// What happened to the memory: runs, and repairs before and after.

const KINDS = {
  sweep: "Forgetting sweep",
  cycle: "Dream cycle",
  repair: "Repair",
  update: "Text rewritten",
  delete: "Softly deleted",
  restore: "Full weight restored, and trusted",
  distrust: "Trust taken back",
  reweight: "Weights set by hand",
  quarantine: "Quarantine",
  recover: "Recovered",
  undo: "Undo",
};
const OPERATIONS = {
  extract: "Extract",
  synthesize: "Bring together",
  merge: "Merge",
  prune: "Count for less",
  restore: "Restore",
  link: "Connect",
  update: "Rewritten by hand",
};
const ROWS = { Sweeps: ["sweep"], Dreams: ["cycle", "repair"], "By hand": ["update", "delete", "restore", "distrust", "reweight", "quarantine", "undo", "recover"] };
const FEWEST_ON_AXIS = 3;
const RUN_PORTION = 25;
const REPAIR_PORTION = 10;

const status = (one) => one.status !== "applied" && element("span", { class: "badge" }, one.status);
const undoing = (one, what) => one.status === "applied" && doing("undo", one.word, one.run_id, what);

function renderTimeline(data) {
  const holder = $("run-list");
  if (!data.runs.length) {
    holder.replaceChildren(element("p", { class: "empty" }, "Nothing has changed this memory yet."));
    return;
  }
  const list = element("ol", { class: "rail" });
  holder.replaceChildren(...(data.runs.length < FEWEST_ON_AXIS ? [] : [axis(data.runs)]), list);
  inPortions(holder, data.runs, RUN_PORTION, runItem, list);
}

// all runs at once on a line of time; the list below says the same, so nobody has to see this
function axis(runs) {
  const times = runs.map((run) => run.at);
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const rows = Object.entries(ROWS).map(([label, kinds]) => {
    const marks = runs.filter((run) => kinds.includes(run.kind)).map((run) => {
      const spot = element("span", { class: `spot ${run.kind} ${run.status}`, title: `${KINDS[run.kind]}, ${moments.format(new Date(run.at * 1000))}` });
      spot.style.left = `${(100 * (run.at - first)) / Math.max(1, last - first)}%`;
      return spot;
    });
    return marks.length > 0 && element("div", { class: "lane" }, element("span", { class: "soft small" }, label), element("span", { class: "track" }, marks));
  });
  const ends = element("div", { class: "ends soft small" }, element("span", {}, moment(first)), element("span", {}, moment(last)));
  return element("div", { class: "axis", "aria-hidden": "true" }, rows, ends);
}

function runItem(run) {
  const name = KINDS[run.kind] || run.kind;
  const undo = undoing(run, `Undo “${name}”`);
  return element("li", { class: `run ${run.kind} ${run.status}`, tabindex: "-1" },
    element("h3", {}, visible(name), " ", status(run)),
    element("p", { class: "soft small" }, moment(run.at), run.seconds !== null && `, took ${run.seconds < 1 ? "under a second" : some(Math.round(run.seconds), "second")}`),
    element("p", { dir: "auto" }, visible(run.what)),
    run.f1_before !== null && run.f1_after !== null && change("Its questions", run.f1_before, run.f1_after),
    run.kind === "cycle" && run.children > 0 && element("p", {}, element("a", { href: "#repairs" }, "Its repairs are below")),
    undo);
}

// F1 before and after, as words and as two bars
function change(label, before, after) {
  const one = (name, value) => element("span", { class: "f1" }, element("span", { class: "soft" }, name), weightBar(value), element("strong", {}, number(value)));
  return element("p", { class: "change" }, element("span", { class: "soft" }, `${label}, F1 `), one("before", before), one("after", after));
}

function renderRepairs(data) {
  const holder = $("repair-list");
  if (!data.repairs.length) {
    holder.replaceChildren(element("p", { class: "empty" }, "No dream has repaired this memory yet."));
    return;
  }
  inPortions(holder, data.repairs, REPAIR_PORTION, repairCard);
}

function repairCard(repair) {
  const title = OPERATIONS[repair.operation] || repair.operation;
  return element("article", { class: `card repair ${repair.status}`, tabindex: "-1" },
    element("h3", {}, visible(title), " ", status(repair)),
    element("p", { class: "soft small" }, moment(repair.at), ", run ", code(repair.run_id), repair.parent !== null && [", of cycle ", code(repair.parent)]),
    repair.question !== null && element("p", { class: "question" }, element("strong", {}, "Asked: "), element("span", { dir: "auto" }, visible(repair.question))),
    repair.reason && element("p", { class: "reason" }, element("strong", {}, "Why: "), element("span", { dir: "auto" }, visible(repair.reason))),
    repair.f1_before !== null && repair.f1_after !== null && change(repair.question === null ? "Trial questions" : "This question", repair.f1_before, repair.f1_after),
    sides(repair),
    undoing(repair, `Undo “${title}”`));
}

function sides(repair) {
  const texts = (rows) => rows.map((one) => element("div", { class: "quote" }, quoted(one.text), element("p", { class: "small soft" }, code(one.id))));
  const wrote = [
    ...texts(repair.after),
    repair.reweighted > 0 && element("div", {}, element("p", {}, some(repair.reweighted, "weight"), " changed", repair.reweighted > repair.weights.length ? `; the ${whole(repair.weights.length)} lowered most:` : ":"),
      element("ul", { class: "shifts" }, repair.weights.map((one) => element("li", {}, code(one.id), ` ${number(one.before)} → ${number(one.after)}`)))),
    repair.keys > 0 && element("details", {}, element("summary", {}, `${some(repair.keys, "retrieval key")} written; ${repair.key_texts.length < repair.keys ? "some" : "all"} of them`),
      element("ul", { class: "keys" }, repair.key_texts.map((one) => element("li", {}, quoted(one.text), element("p", { class: "small soft" }, "finds ", code(one.id)))))),
    repair.edges > 0 && element("p", {}, some(repair.edges, "connection"), " written"),
  ].filter(Boolean);
  if (!repair.before.length) return wrote.length > 0 && element("div", { class: "wrote" }, wrote);
  return element("div", { class: "sides" },
    element("div", {}, element("h4", {}, "Before"), texts(repair.before)),
    element("div", {}, element("h4", {}, "After"), wrote));
}
