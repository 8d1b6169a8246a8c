// What a served page can do beside showing: undo, restore, decide about repairs, and stay up to date.

const POLL_MS = 3000;
const TOKEN = new URL($("report-data").dataset.src, location.href).searchParams.get("token");
const live = { version: null, proposals: undefined, busy: false, shown: "" };

async function ask(path, body = null) {
  const options = body === null
    ? { headers: { "x-dream-token": TOKEN } }
    : { method: "POST", headers: { "x-dream-token": TOKEN, "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error || `the server answered ${answer.status}`);
  return said;
}

function tell(text, bad = false) {
  const bar = $("ui-said");
  bar.classList.toggle("bad", bad);
  bar.replaceChildren(...visible(text));
  bar.hidden = !text;
}

// one change at a time: buttons rest until the answer is there
async function alter(path, body, done) {
  if (live.busy) return;
  live.busy = true;
  document.documentElement.dataset.busy = "yes";
  try {
    const said = await ask(path, body);
    tell(typeof done === "function" ? done(said) : done);
    await refresh();
  } catch (error) {
    tell(error.message, true);
  } finally {
    live.busy = false;
    delete document.documentElement.dataset.busy;
  }
}

// what stands on the page is what is looked at, whatever became of it meanwhile
const seen = (id) => page.data.memories.find((memory) => memory.id === id)?.digest ?? null;

page.actions = {
  undo: (id) => alter("/api/undo", { run_id: id }, (said) => `Undone: ${some(said.changes, "change")} taken back. The undo is in the timeline; undo it to redo.`),
  restore: (id) => alter("/api/restore", { id, digest: seen(id) }, (said) => `${said.changes ? "It has its full weight back" : "It had its full weight already"}, and is trusted from now on. Undo it in the timeline.`),
  distrust: (id) => alter("/api/distrust", { id }, "The next sweep judges it as any other. Undo that in the timeline."),
};

async function refresh() {
  const scroll = scrollY;
  render(await load());
  scrollTo({ top: scroll, behavior: "instant" });
}

async function look() {
  try {
    const now = await ask("/api/version");
    renderProposals(now.proposals);
    if (live.version !== null && now.version !== live.version && !live.busy) await refresh();
    live.version = now.version;
    document.documentElement.dataset.live = "yes";
  } catch (error) {
    document.documentElement.dataset.live = "no";
    tell(`No longer live: ${error.message}. Is the server still running?`, true);
  }
  setTimeout(look, POLL_MS);
}

function renderProposals(state) {
  if (state === null) return;
  const told = JSON.stringify(state);
  if (told === live.shown) return;
  live.shown = told;
  const idle = state.doing === "idle";
  const start = element("button", { type: "button", class: "act", disabled: !idle, on: { click: () => alter("/api/propose", {}, "A dream looks for repairs; nothing is written.") } }, "Look for repairs");
  const doing = { idle: state.said || "", proposing: "A dream is asking the memory questions …", writing: "Writing what you accepted …" }[state.doing];
  const all = state.proposals.map((one) => one.id);
  const every = all.length > 1 && element("button", { type: "button", class: "act", disabled: !idle, on: { click: () => decide(all, []) } }, `Accept all ${all.length}`);
  $("proposal-list").replaceChildren(
    element("p", { class: "decisions" }, start, every, element("span", { class: "soft", role: "status" }, " ", visible(doing))),
    ...state.proposals.map((one) => proposalCard(one, idle)));
  $("count-proposals").textContent = whole(all.length);
}

const decide = (accepted, declined) => alter("/api/decide", { accepted, declined }, accepted.length ? "Accepted; it is being written." : "Turned down; it will not be proposed again.");

function proposalCard(one, idle) {
  const title = OPERATIONS[one.operation] || one.operation;
  const lowered = Object.keys(one.weights).length;
  const writes = [one.keys > 0 && some(one.keys, "retrieval key"), one.edges > 0 && some(one.edges, "connection"), lowered > 0 && some(lowered, "new weight")].filter(Boolean);
  const button = (label, accepted) => element("button", { type: "button", class: "act", disabled: !idle, "aria-label": `${label}: ${title.toLowerCase()}, ${oneLine(one.query || one.reason, 60)}`, on: { click: () => (accepted ? decide([one.id], []) : decide([], [one.id])) } }, label);
  return element("article", { class: "card proposal", tabindex: "-1" },
    element("h3", {}, visible(title)),
    one.query !== null && element("p", { class: "question" }, element("strong", {}, "Asked: "), element("span", { dir: "auto" }, visible(one.query))),
    element("p", { class: "reason" }, element("strong", {}, "Why: "), element("span", { dir: "auto" }, visible(one.reason))),
    change(one.query === null ? "Trial questions" : "This question", one.f1_before, one.f1_after),
    one.text !== null && element("blockquote", { dir: "auto" }, visible(one.text)),
    writes.length > 0 && element("p", {}, `It writes ${writes.join(", ")}.`),
    element("p", { class: "decisions" }, button("Accept", true), button("Turn down", false)));
}

$("main").before(element("p", { id: "ui-said", role: "status", hidden: true }));
$("repairs").before(element("section", { id: "proposals", "aria-labelledby": "proposals-title" },
  element("h2", { id: "proposals-title" }, "Proposals"),
  element("p", { class: "lead" }, "Repairs that a dream would make. Nothing is written until you accept it, and each can be undone."),
  element("div", { id: "proposal-list" }, element("p", { class: "empty" }, "This page was served without an embedder: start it with --embedder to let it dream."))));
document.querySelector('nav.sections a[href="#repairs"]').closest("li").before(element("li", {}, element("a", { href: "#proposals" }, "Proposals", element("span", { class: "count", id: "count-proposals" }))));
look();
