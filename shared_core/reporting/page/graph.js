// The memory graph: drawn on a canvas from the places that were computed beforehand; zoom, drag, keyboard.

const LINES = {
  provenance: "quotes",
  merged: "merged",
  bridge: "bridge",
  entity: "same entity",
  session: "same session",
  near: "near in meaning",
};
const SHEET = 1000;
const EDGE = 40;
// how much wider than high, or higher than wide, the graph may be drawn to fill its room
const STRETCH = 2;
const MOST_ZOOM = 24;
const STEP = 1.4;
const PAN = 60;
const LABEL_LETTERS = 34;
const MOST_LABELS = 60;
const TABLE_ROWS = 1000;
const RELATED_SHOWN = 12;

function renderGraph(data, memory) {
  const canvas = $("canvas");
  const pen = canvas.getContext("2d");
  const nodes = data.graph.nodes.map(([id, x, y]) => ({ id, x, y, memory: memory.get(id), links: [] }));
  const edges = data.graph.edges.map(([from, to, kind]) => ({ from, to, kind: data.graph.kinds[kind] }));
  edges.forEach((edge) => {
    nodes[edge.from].links.push({ to: edge.to, kind: edge.kind });
    nodes[edge.to].links.push({ to: edge.from, kind: edge.kind });
  });
  const byImportance = nodes.map((_, index) => index).sort((one, other) =>
    nodes[other].memory.suspect - nodes[one].memory.suspect || nodes[other].memory.derived - nodes[one].memory.derived || nodes[other].links.length - nodes[one].links.length || one - other);
  const counted = new Map();
  edges.forEach((edge) => counted.set(edge.kind, (counted.get(edge.kind) || 0) + 1));
  // a line per memory and a half can be followed; more of one kind only cover the rest
  const shown = new Set([...counted.keys()].filter((kind) => counted.get(kind) <= 1.5 * nodes.length));
  const view = { scale: 1, x: 0, y: 0 };
  let picked = null;
  let found = null;
  let size = { width: 0, height: 0, across: 1, along: 1, mark: 4 };
  let colours = {};
  let asked = false;

  const at = (node) => [
    size.width / 2 + (node.x - SHEET / 2 - view.x) * size.across * view.scale,
    size.height / 2 + (node.y - SHEET / 2 - view.y) * size.along * view.scale,
  ];
  const radius = (node) => size.mark * (0.8 + 0.12 * Math.sqrt(Math.min(36, node.links.length))) * Math.min(2.2, Math.sqrt(view.scale));

  function draw() {
    asked = false;
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.clearRect(0, 0, size.width, size.height);
    const near = picked === null ? null : new Set([picked, ...nodes[picked].links.map((link) => link.to)]);
    const faint = (index) => (near && !near.has(index)) || (found && !found.has(nodes[index].id));
    drawEdges(near);
    // what matters is drawn last, on top
    for (let order = byImportance.length - 1; order >= 0; order -= 1) drawNode(byImportance[order], faint(byImportance[order]));
    drawLabels(faint);
  }

  function drawEdges(near) {
    for (const edge of edges) {
      const chosen = picked !== null && (edge.from === picked || edge.to === picked);
      if (!shown.has(edge.kind) && !chosen) continue;
      const strong = edge.kind === "provenance" || edge.kind === "merged";
      pen.globalAlpha = chosen ? 0.9 : near ? 0.1 : strong ? 0.75 : edges.length > 1500 ? 0.45 : 0.65;
      pen.strokeStyle = chosen ? colours.ink : strong ? colours.good : colours.line;
      pen.lineWidth = chosen ? 1.5 : 1;
      pen.setLineDash(edge.kind === "bridge" ? [4, 3] : []);
      pen.beginPath();
      pen.moveTo(...at(nodes[edge.from]));
      pen.lineTo(...at(nodes[edge.to]));
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  function drawNode(index, faint) {
    const node = nodes[index];
    const [x, y] = at(node);
    if (x < -20 || y < -20 || x > size.width + 20 || y > size.height + 20) return;
    const half = radius(node);
    pen.globalAlpha = faint ? 0.2 : 1;
    mark(pen, node.memory, x, y, half, colours);
    if (index === picked) {
      pen.lineWidth = 2;
      pen.strokeStyle = colours.ink;
      pen.beginPath();
      pen.arc(x, y, half + 5, 0, 2 * Math.PI);
      pen.stroke();
    }
  }

  function drawLabels(faint) {
    const taken = [];
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    const most = Math.min(MOST_LABELS, Math.round((10 + 8 * view.scale) * Math.min(1, (size.width / 900) ** 1.5)));
    const order = picked === null ? byImportance : [picked, ...nodes[picked].links.map((link) => link.to), ...byImportance];
    const seen = new Set();
    for (const index of order) {
      if (seen.size >= most) break;
      const [x, y] = at(nodes[index]);
      if (seen.has(index) || faint(index) || x < 0 || y < 0 || x > size.width || y > size.height) continue;
      const text = oneLine(nodes[index].memory.text.text, size.width < 600 ? LABEL_LETTERS / 2 : LABEL_LETTERS);
      const width = pen.measureText(text).width;
      const left = x + width + 14 > size.width ? x - width - radius(nodes[index]) - 5 : x + radius(nodes[index]) + 5;
      const box = [left - 3, y - 9, left + width + 3, y + 9];
      if (box[0] < 0 || taken.some((one) => box[0] < one[2] && one[0] < box[2] && box[1] < one[3] && one[1] < box[3])) continue;
      taken.push(box);
      seen.add(index);
      pen.globalAlpha = 0.85;
      pen.fillStyle = colours.card;
      pen.fillRect(box[0], box[1], width + 6, 18);
      pen.globalAlpha = 1;
      pen.fillStyle = colours.ink;
      pen.fillText(text, left, y);
    }
    canvas.dataset.labels = seen.size;
  }

  function redraw() {
    if (!asked) requestAnimationFrame(draw);
    asked = true;
  }

  function measure() {
    const box = canvas.getBoundingClientRect();
    const [across, along] = [(box.width - 2 * EDGE) / SHEET, (box.height - 2 * EDGE) / SHEET];
    const least = Math.min(across, along) * STRETCH;
    // a tenth of the way to the next mark, were they spread evenly
    const room = Math.sqrt((box.width * box.height) / Math.max(1, nodes.length));
    size = { width: box.width, height: box.height, across: Math.min(across, least), along: Math.min(along, least), mark: Math.max(2, Math.min(5, 0.11 * room)) };
    canvas.width = Math.round(box.width * devicePixelRatio);
    canvas.height = Math.round(box.height * devicePixelRatio);
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(["ink", "card", "line", "good", "danger", "accent", "soft"].map((name) => [name, style.getPropertyValue(`--${name}`)]));
    drawLegend(colours);
    redraw();
  }

  function zoom(factor, x = size.width / 2, y = size.height / 2) {
    const scale = Math.max(0.5, Math.min(MOST_ZOOM, view.scale * factor));
    // what is under the pointer stays there
    view.x += ((x - size.width / 2) / size.across) * (1 / view.scale - 1 / scale);
    view.y += ((y - size.height / 2) / size.along) * (1 / view.scale - 1 / scale);
    view.scale = scale;
    told();
  }

  function told() {
    $("zoom-level").textContent = `Zoom ${Math.round(view.scale * 100)} %`;
    redraw();
  }

  function fit() {
    Object.assign(view, { scale: 1, x: 0, y: 0 });
    told();
  }

  function move(x, y) {
    view.x += x / size.across / view.scale;
    view.y += y / size.along / view.scale;
    redraw();
  }

  function pick(index, show = false) {
    picked = index;
    if (show && index !== null) Object.assign(view, { x: nodes[index].x - SHEET / 2, y: nodes[index].y - SHEET / 2 });
    $("picked").replaceChildren(...(index === null ? [] : [pickedCard(nodes, index, (other) => pick(other, true))]));
    canvas.dataset.picked = index === null ? "" : nodes[index].id;
    redraw();
  }

  function nearest(x, y, within = 14) {
    let best = null;
    let least = within;
    nodes.forEach((node, index) => {
      const [left, top] = at(node);
      const apart = Math.hypot(left - x, top - y) - radius(node);
      if (apart < least) [best, least] = [index, apart];
    });
    return best;
  }

  listenToPointer(canvas, { move, zoom, nearest, pick, nodes, at });
  canvas.onkeydown = (event) => {
    const index = picked === null ? -1 : byImportance.indexOf(picked);
    const keys = {
      ArrowLeft: () => move(-PAN, 0),
      ArrowRight: () => move(PAN, 0),
      ArrowUp: () => move(0, -PAN),
      ArrowDown: () => move(0, PAN),
      "+": () => zoom(STEP),
      "=": () => zoom(STEP),
      "-": () => zoom(1 / STEP),
      0: fit,
      n: () => nodes.length && pick(byImportance[(index + 1) % nodes.length], true),
      p: () => nodes.length && pick(byImportance[(index - 1 + nodes.length) % nodes.length], true),
      Escape: () => pick(null),
    };
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  $("zoom-in").onclick = () => zoom(STEP);
  $("zoom-out").onclick = () => zoom(1 / STEP);
  $("zoom-fit").onclick = fit;
  chooseLines(counted, shown, redraw);
  fillTable(nodes);
  page.highlight = (ids) => {
    found = ids;
    redraw();
  };
  page.watch?.disconnect();
  page.watch = new ResizeObserver(measure);
  page.watch.observe(canvas);
  page.recolour = measure;
  canvas.dataset.nodes = nodes.length;
  pick(null);
  told();
}

// the shape says it too, not the colour alone
function mark(pen, memory, x, y, half, colours) {
  pen.beginPath();
  if (memory.suspect) {
    const tip = half * 1.5;
    pen.moveTo(x, y - tip);
    pen.lineTo(x + tip, y);
    pen.lineTo(x, y + tip);
    pen.lineTo(x - tip, y);
    pen.closePath();
  } else if (memory.derived) pen.rect(x - half, y - half, 2 * half, 2 * half);
  else pen.arc(x, y, half, 0, 2 * Math.PI);
  const full = memory.standing === "full";
  const colour = memory.suspect ? colours.danger : memory.derived ? colours.good : colours.accent;
  pen.fillStyle = memory.suspect || memory.derived || full ? colour : colours.card;
  pen.strokeStyle = memory.suspect || !full ? colour : colours.card;
  pen.lineWidth = full && !memory.suspect ? 1 : 1.75;
  pen.fill();
  pen.stroke();
}

function drawLegend(colours) {
  const samples = [
    ["full weight", { standing: "full" }],
    ["lowered weight", { standing: "reduced" }],
    ["suspect", { standing: "forgotten", suspect: true }],
    ["written by a dream", { standing: "full", derived: true }],
  ];
  $("legend").replaceChildren(...samples.map(([label, memory]) => {
    const sample = element("canvas", { width: 40, height: 40, "aria-hidden": "true" });
    const pen = sample.getContext("2d");
    pen.scale(2, 2);
    mark(pen, memory, 10, 10, 5, colours);
    return element("li", {}, sample, label);
  }));
}

function chooseLines(counted, shown, redraw) {
  const boxes = Object.entries(LINES).filter(([kind]) => counted.get(kind)).map(([kind, label]) => {
    const box = element("input", { type: "checkbox" });
    box.checked = shown.has(kind);
    box.onchange = () => {
      if (box.checked) shown.add(kind);
      else shown.delete(kind);
      redraw();
    };
    return element("label", {}, box, ` ${label} `, element("span", { class: "soft" }, whole(counted.get(kind))));
  });
  $("kinds").hidden = !boxes.length;
  $("kinds").replaceChildren(element("legend", {}, "Lines"), ...boxes);
}

// one finger or the mouse drags, two fingers zoom, a short touch or a click picks
function listenToPointer(canvas, graph) {
  const down = new Map();
  let moved = 0;
  const place = (event) => [event.clientX - canvas.getBoundingClientRect().left, event.clientY - canvas.getBoundingClientRect().top];
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    moved = 0;
  };
  canvas.onpointermove = (event) => {
    const [x, y] = place(event);
    if (!down.has(event.pointerId)) {
      pointAt(canvas, graph, x, y);
      return;
    }
    const [beforeX, beforeY] = down.get(event.pointerId);
    moved += Math.hypot(x - beforeX, y - beforeY);
    if (down.size === 2) {
      const [other] = [...down].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const ratio = Math.hypot(x - other[0], y - other[1]) / Math.max(1, Math.hypot(beforeX - other[0], beforeY - other[1]));
      graph.zoom(ratio, (x + other[0]) / 2, (y + other[1]) / 2);
    } else if (moved > 4) graph.move(beforeX - x, beforeY - y);
    down.set(event.pointerId, [x, y]);
  };
  canvas.onpointerup = (event) => {
    down.delete(event.pointerId);
    if (moved <= 4) graph.pick(graph.nearest(...place(event)));
  };
  canvas.onpointercancel = (event) => down.delete(event.pointerId);
  canvas.onpointerleave = () => { $("pointed").hidden = true; };
  canvas.onwheel = (event) => {
    // a page that is being scrolled goes on scrolling
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    graph.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, ...place(event));
  };
}

function pointAt(canvas, graph, x, y) {
  const index = graph.nearest(x, y, 6);
  const label = $("pointed");
  label.hidden = index === null;
  canvas.style.cursor = index === null ? "grab" : "pointer";
  if (index === null) return;
  label.replaceChildren(...visible(oneLine(graph.nodes[index].memory.text.text, 80)));
  const [left, top] = graph.at(graph.nodes[index]);
  label.style.left = `${Math.max(8, Math.min(left, canvas.clientWidth - label.offsetWidth - 8))}px`;
  label.style.top = `${top + 14}px`;
}

function pickedCard(nodes, index, go) {
  const node = nodes[index];
  const links = [...new Map(node.links.map((link) => [link.to, link])).values()];
  const related = links.slice(0, RELATED_SHOWN).map((link) => element("li", {},
    element("button", { type: "button", class: "plain", dir: "auto", on: { click: () => go(link.to) } }, visible(oneLine(nodes[link.to].memory.text.text, 90))),
    element("span", { class: "soft small" }, ` ${LINES[link.kind]}`)));
  const more = links.length - related.length;
  return element("article", { class: "card" },
    element("h3", {}, code(node.id), " ", badges(node.memory)),
    memoryDetails(node.memory),
    element("h4", {}, links.length ? some(links.length, "connection") : "No connections"),
    element("ul", { class: "related" }, related),
    more > 0 && element("p", { class: "soft small" }, `and ${whole(more)} more`));
}

// the same for who cannot see the canvas; filled when it is opened
function fillTable(nodes) {
  const details = $("graph-table");
  const holder = details.lastElementChild;
  holder.replaceChildren();
  const fill = () => {
    if (!details.open || holder.children.length) return;
    const rows = nodes.slice(0, TABLE_ROWS).map((node) => {
      const kinds = new Map();
      node.links.forEach((link) => kinds.set(link.kind, [...(kinds.get(link.kind) || []), nodes[link.to].id]));
      const linked = [...kinds].map(([kind, ids]) => element("div", {}, `${LINES[kind]}: `, ids.slice(0, 5).flatMap((id, place) => [place ? ", " : "", code(id)]), ids.length > 5 ? ` and ${whole(ids.length - 5)} more` : ""));
      return element("tr", {},
        element("th", { scope: "row" }, code(node.id), element("div", { class: "soft", dir: "auto" }, visible(oneLine(node.memory.text.text, 80)))),
        element("td", {}, number(node.memory.weight), element("div", {}, badges(node.memory))),
        element("td", {}, linked.length ? linked : element("span", { class: "soft" }, "none")));
    });
    holder.append(element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "The graph as a table" }, element("table", {},
      element("thead", {}, element("tr", {}, ["Memory", "Weight", "Connected to"].map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, rows))));
  };
  details.ontoggle = fill;
  fill();
}
