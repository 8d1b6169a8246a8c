// Starts the page: reads the data, draws every section. Whoever serves this page live adds a script of its own
// behind this one; it may set `dreamPage.actions` and call `dreamPage.render` with newer data.

const FORMAT = "dream-report/1";

async function load() {
  const block = $("report-data");
  if (!block.dataset.src) return JSON.parse(block.textContent);
  const answer = await fetch(block.dataset.src, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

function render(data) {
  if (data.format !== FORMAT) throw new Error(`the data is of format ${data.format}, this page reads ${FORMAT}`);
  page.data = data;
  page.place = data.place;
  const memory = new Map(data.memories.map((one) => [one.id, one]));
  renderHeader(data);
  renderGlance(data);
  renderSuspects(data, memory);
  renderGraph(data, memory);
  renderMemories(data);
  renderTimeline(data);
  renderRepairs(data);
  renderAbout(data);
  document.documentElement.dataset.ready = "yes";
}

function renderAbout(data) {
  const bank = data.bank;
  const facts = [
    ["Made", moment(data.made_at)],
    ["By", data.made_by],
    ["Collection", code(bank.collection)],
    bank.scope && ["Only", code(bank.scope)],
    ["Embeddings", bank.dimension === null ? "none" : `dimension ${bank.dimension}, ${bank.space}`],
    ["Version of the bank", whole(bank.version)],
    bank.locked_by && ["At work", bank.locked_by],
    bank.quarantine !== null && ["New memories count for", number(bank.quarantine)],
  ].filter(Boolean);
  $("about-text").replaceChildren(element("div", {},
    element("p", {}, "This file holds the texts of memories: give it only to those who may read them. It reaches for nothing outside itself. What stands in a memory is shown as text, whatever it says; characters that hide or turn round what is read are shown by their number, as ", element("span", { class: "hidden-letter" }, "U+202E"), "."),
    data.left_out.length > 0 && element("h3", {}, "What is not on this page"),
    data.left_out.length > 0 && element("ul", {}, data.left_out.map((line) => element("li", {}, visible(line)))),
    element("dl", { class: "facts" }, facts.map(([label, value]) => element("div", {}, element("dt", {}, label), element("dd", {}, value))))));
}

function failed(error) {
  $("advice").replaceChildren(element("p", { class: "note", role: "alert" }, `This report cannot be shown: ${error.message}`));
  throw error;
}

globalThis.dreamPage = Object.assign(page, { render, load, element, visible, commandLine });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.recolour?.());
// after every script of this page has run
queueMicrotask(() => load().then(render).catch(failed));
