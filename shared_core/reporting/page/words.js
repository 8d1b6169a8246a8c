// Text into the page. The bank's text is hostile: it enters as text nodes only, never as markup, and
// characters that would reorder, hide or break what is read are shown by their names.

const $ = (id) => document.getElementById(id);

// controls but tab and line feed, bidirectional controls, invisible characters, tags, lone surrogates; a
// joiner, U+200C or U+200D, stays: emoji and Persian need it
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;
const MOST_MARKS = 500;

function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else if (key === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) made.append(child);
  }
  return made;
}

const named = (letter) => `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

// nodes of a hostile text; what `found`, a regular expression, matches is marked
function visible(text, found = null) {
  const nodes = [];
  let marks = 0;
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (marks++ >= MOST_MARKS) break;
    nodes.push(...highlighted(text.slice(from, match.index), found));
    nodes.push(element("span", { class: "hidden-letter", title: "an invisible or control character" }, named(match[0])));
    from = match.index + match[0].length;
  }
  // beyond so many the rest is shown without them
  const rest = text.slice(from);
  nodes.push(...highlighted(marks > MOST_MARKS ? rest.replace(HIDDEN, "�") : rest, found));
  return nodes;
}

function highlighted(text, found) {
  if (!found) return text ? [text] : [];
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(found)) {
    if (!match[0]) continue;
    nodes.push(text.slice(from, match.index), element("mark", {}, match[0]));
    from = match.index + match[0].length;
  }
  nodes.push(text.slice(from));
  return nodes.filter(Boolean);
}

// an id, or another short hostile text, on one line
const code = (text, found = null) => element("code", { dir: "ltr" }, visible(text.replace(/[\n\t]/g, " "), found));

// one line of a text, for a label
function oneLine(text, limit) {
  const flat = text.replace(/\s+/g, " ").replace(HIDDEN, "�").trim();
  const letters = Array.from(flat.slice(0, 2 * limit));
  return letters.length > limit ? `${letters.slice(0, limit - 1).join("")}…` : flat || "(no text)";
}

// a memory's text, with a note where it is longer than what is shown
function quoted(shown, found = null) {
  const none = element("em", { class: "soft" }, "no text");
  const block = element("blockquote", { dir: "auto" }, shown.text ? visible(shown.text, found) : none);
  const count = Array.from(shown.text).length;
  if (shown.length <= count) return block;
  const note = element("p", { class: "soft small" }, `${whole(shown.length)} characters; the first ${whole(count)} are shown.`);
  return element("div", {}, block, note);
}

const whole = (value) => value.toLocaleString("en");
const some = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;

function number(value) {
  if (value === null || value === undefined) return "unknown";
  if (value !== 0 && Math.abs(value) < 0.001) return "under 0.001";
  return value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 3 });
}

const moments = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

function moment(seconds) {
  const when = new Date(seconds * 1000);
  if (Number.isNaN(when.getTime())) return element("span", {}, "at an unknown time");
  return element("time", { datetime: when.toISOString() }, moments.format(when));
}

// what the page can do about a memory or a run: a command line to copy, or whatever serves this page offers
const page = { data: null, place: null, actions: {}, highlight: () => {} };

function commandLine(line, what) {
  // a line is broken between words, never inside --collection
  const words = line.split(" ").flatMap((word, place) => [place ? " " : "", element("span", { class: "word" }, word)]);
  const shown = element("code", { dir: "ltr" }, words);
  const copy = element("button", { type: "button", class: "copy", "aria-label": `Copy the command: ${what}` }, "Copy");
  copy.addEventListener("click", async () => {
    await copied(line, shown);
    copy.textContent = "Copied";
    $("announce").textContent = `Copied: ${what}`;
    setTimeout(() => { copy.textContent = "Copy"; $("announce").textContent = ""; }, 2000);
  });
  return element("div", { class: "command" }, shown, copy);
}

// verb: of the command line; word: as the shell reads it; id: as it is; what: for people
function doing(verb, word, id, what) {
  const act = page.actions[verb];
  const button = act && element("button", { type: "button", class: "act", on: { click: () => act(id) } }, what);
  const line = page.place !== null && word && [element("p", {}, `${what}:`), commandLine(`dream ${verb} ${page.place} ${word}`, what)];
  const none = page.place !== null && !word && element("p", { class: "soft small" }, "This id holds a null byte: no command line can name it.");
  return element("div", { class: "doing" }, button, line, none);
}

async function copied(line, shown) {
  try {
    await navigator.clipboard.writeText(line);
  } catch {
    // an old browser, or a page that may not: what is selected can still be copied
    const range = document.createRange();
    range.selectNodeContents(shown);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
}

// a list that shows some, and more when asked; the keyboard goes on at the first that is new
function inPortions(holder, items, portion, build, list = holder) {
  list.replaceChildren();
  let shown = 0;
  const more = element("button", { type: "button", class: "more" });
  const add = () => {
    const made = items.slice(shown, shown + portion).map(build);
    shown += made.length;
    more.remove();
    list.append(...made);
    const left = items.length - shown;
    if (left > 0) holder.append(more);
    more.textContent = left > portion ? `Show ${whole(portion)} more of ${whole(left)}` : `Show ${whole(left)} more`;
    return made;
  };
  more.addEventListener("click", () => {
    const [first] = add();
    (first.querySelector("summary") || first).focus({ preventScroll: true });
  });
  add();
}
