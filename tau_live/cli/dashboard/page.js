// The dashboard: shows what the server reads from the store, and asks it to act.
const $ = (id) => document.getElementById(id);
const csrf = document.querySelector("meta[name=csrf]").content;
const TOKEN = "tau-live-token";
let page = 1;
let snapshot = null;
let plotly = null;
let refreshed = 0;
let streaming = null;
let last = null;

// ---- elements and texts ----

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null));
}

function number(value) {
  if (value === null || value === undefined) return "-";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? value.toLocaleString("en-US") : String(Number(value.toPrecision(4)));
}

function moment(ms) {
  if (ms === null || ms === undefined) return "-";
  return new Date(ms).toISOString().slice(0, 19).replace("T", " ");
}

function duration(ms) {
  if (ms === null || ms === undefined) return "-";
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 7200000 ? `${(ms / 60000).toFixed(1)} min` : `${(ms / 3600000).toFixed(1)} h`;
}

function words(text) {
  // commands stand in backticks
  return String(text).split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
}

function table(node, caption, columns, rows) {
  const head = columns.map((name) =>
    element("th", { scope: "col", class: name.endsWith("#") ? "number" : null }, name.replace(/#$/, "") || " "));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell, index) =>
    element("td", { class: columns[index].endsWith("#") ? "number" : null },
      ...(Array.isArray(cell) ? cell : [cell instanceof Node ? cell : String(cell ?? "-")])))));
  fill(node, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

// ---- the server ----

function address(path, parameters = {}) {
  const own = Object.entries({ ...parameters, store: $("store").value || "0" });
  return `${path}?${new URLSearchParams(own.filter(([, value]) => value !== ""))}`;
}

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, "x-tau-token": token } : more;
}

async function answer(response) {
  if (response.status === 401) {
    await askForToken();
    throw new Error("signed in");
  }
  const found = await response.json();
  if (!response.ok) throw new Error(found.error.message);
  return found;
}

async function load(path, parameters) {
  return answer(await fetch(address(path, parameters), { headers: headers() }));
}

async function stream() {
  // by fetch, because an EventSource cannot bear a token
  streaming?.abort();
  const own = (streaming = new AbortController());
  let pause = 500;
  while (!own.signal.aborted) {
    try {
      const more = last ? { "last-event-id": last } : {};
      const response = await fetch(address("dashboard/stream"), { headers: headers(more), signal: own.signal });
      if (!response.ok) await answer(response);
      pause = 500;
      $("connection").textContent = "live";
      await read(response.body.getReader());
    } catch (error) {
      if (own.signal.aborted) return;
      $("connection").textContent = "not connected: the figures are those of the last contact";
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(2 * pause, 10000);
  }
}

async function read(reader) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(event.split("\n").map((line) => {
        const at = line.indexOf(": ");
        return [line.slice(0, at), line.slice(at + 2)];
      }));
      if (fields.id) last = fields.id;
      if (fields.event === "dashboard.snapshot") show(JSON.parse(fields.data));
    }
  }
}

// ---- the overview ----

const SYMBOLS = { good: "✓", doubtful: "!", bad: "✕" };

function card(title, answered) {
  return element("div", { class: `card ${answered.state}` }, element("h3", {}, title),
    element("p", { class: "answer" }, element("span", { class: "symbol", "aria-hidden": "true" }, SYMBOLS[answered.state]),
      answered.answer), element("p", {}, ...words(answered.sentence)));
}

function show(found) {
  snapshot = found;
  const { summary } = found;
  fill($("cards"), card("Is it on?", summary.on), card("Is it healthy?", summary.healthy),
    card("Is it learning?", summary.learning), card("Better than without?", summary.better),
    card("What does it cost?", summary.cost),
    element("div", { class: "card next" }, element("h3", {}, "What to do next"),
      element("ol", {}, ...summary.next.map((step) => element("li", {}, ...words(step))))));
  fill($("alert-list"), ...found.alerts.map((alert) => element("li", { class: alert.severity },
    element("strong", {}, `${alert.severity}: ${alert.code}`), alert.since_unix_ms ? ` since ${moment(alert.since_unix_ms)} UTC` : "",
    element("br"), ...words(alert.message), alert.todo ? element("br") : null, ...(alert.todo ? ["→ ", element("code", {}, alert.todo)] : []))));
  fill($("widgets"), ...found.widgets.map((widget) => element("div", { "data-id": widget.id },
    element("dt", {}, widget.title), element("dd", {}, shown(widget)))));
  controls(found.control);
  document.title = `${found.summary.healthy.answer === "yes" ? "" : "(!) "}tau-live`;
  refresh();
}

function shown(widget) {
  if (widget.unit === "share" && widget.value !== null) return `${number(100 * widget.value)}%`;
  if (widget.unit === "usd" && widget.value !== null) return `$${number(widget.value)}`;
  return number(widget.value);
}

function controls(control) {
  const holds = control.gate && control.gate.state !== "pass";
  const buttons = [
    holds ? action("Reset the gate", { action: "reset" }, "tau-live may act again in every running process.")
      : action("Hold the gate", { action: "hold" }, "Every running process behaves as if tau-live were not installed.", true),
  ];
  const means = { collection: "New runs are neither recorded nor decided.", learning: "No updates are made.",
    deciding: "The host's own choice is served." };
  for (const [part, meaning] of Object.entries(means)) {
    buttons.push(part in control.paused
      ? action(`Resume ${part}`, { action: "resume", part }, "It goes on in every running process.")
      : action(`Pause ${part}`, { action: "pause", part }, meaning));
  }
  keepFocus(() => fill($("control-buttons"), ...buttons));
  table($("audit"), "Newest entries of the audit", ["when (UTC)", "who", "action", "reason"],
    control.audit.map((entry) => [moment(1000 * entry.at), entry.who, entry.action, entry.reason]));
}

function keepFocus(change) {
  // elements that are made anew keep the focus of those of the same text
  const text = document.activeElement?.textContent, tag = document.activeElement?.tagName;
  change();
  if (tag === "BUTTON" || tag === "A") {
    [...document.querySelectorAll(tag)].find((node) => node.textContent === text && document.activeElement === document.body)?.focus();
  }
}

async function refresh() {
  // the larger sections are read at most every five seconds
  const now = Date.now();
  if (now - refreshed < 5000) {
    clearTimeout(refresh.later);
    refresh.later = setTimeout(refresh, 5000 - (now - refreshed));
    return;
  }
  refreshed = now;
  await Promise.allSettled([versions(), decisions(), rollouts(), queues(), runs(), facts()]);
  await charts().catch(() => {});
}

async function facts() {
  const found = await load("dashboard/facts");
  table($("facts"), "Every figure of the status", ["what", "figure"], found.facts.lines);
}

async function versions() {
  const { versions: found } = await load("dashboard/versions");
  const points = [...new Set([...Object.keys(found.in_service), ...Object.keys(found.trials)])].sort();
  const rows = points.map((point) => {
    const serving = found.in_service[point], trial = found.trials[point];
    const { estimate, lower, upper } = trial?.difference ?? {};
    const lift = `${number(estimate)} (${number(lower)} to ${number(upper)})`;
    const of = { point };
    return [point, number(serving?.version ?? 0), trial ? `${number(100 * trial.exposure)}%` : "-", lift, trial?.verdict ?? "-",
      trial?.stopped ? `stopped: ${trial.stopped}` : trial?.why ?? "", element("p", { class: "buttons" },
        action(`Promote ${point}`, { action: "promote", ...of }, "The version in service becomes the champion, at full exposure."),
        action(`Roll back ${point}`, { action: "rollback", ...of }, "The version before decides in every running process.", true),
        action(`Expose ${point}`, { action: "exposure", ...of }, "The learner decides this share of rollouts."),
        action(`Stop ${point}`, { action: "stop", ...of }, "The learner decides nothing here until it is exposed again.", true))];
  });
  keepFocus(() => {
    const node = element("table");
    table(node, "Decision points", ["point", "serves#", "exposure#", "lift (95 % interval)", "verdict", "note", "act"], rows);
    fill($("points"), rows.length ? element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Decision points" }, node)
      : element("p", {}, "No decision point has learned yet."));
  });
  table($("version-table"), "Versions, newest first", ["version#", "point", "from#", "rollouts#", "made (UTC)", "use"],
    found.versions.toReversed().slice(0, 200).map((one) => [number(one.version), one.point, number(one.parent ?? 0), number(one.rollouts),
      moment(1000 * one.created_at), [one.in_service ? "serves" : "", one.pinned ? "pinned" : "", one.role ?? "", one.has_file ? "" : "file deleted"]
        .filter(Boolean).join(", ") || "-"]));
}

async function decisions() {
  const found = await load("dashboard/decisions");
  keepFocus(() => table($("decision-table"), "Decisions of the newest rollouts", ["why", "point", "applied", "of#", "probability#", "decided by", "reward#", "made (UTC)"],
    found.decisions.map((one) => [element("a", { href: `#/decisions/${encodeURIComponent(one.decision_id)}` }, `why ${one.decision_id.replace(/^live-/, "").slice(0, 8)}${one.decision_id.split(":").slice(1).join(":").replace("attempt-", ":").replace(":decision-", ":")}`),
      one.point, one.applied, number(one.options), number(one.propensity), one.why_not ?? `version ${one.policy_version}, ${one.arm}`, number(one.reward), moment(one.at_unix_ms)])));
}

async function rollouts() {
  const form = Object.fromEntries(new FormData($("search")));
  const found = await load("training/rollouts", { ...form, page, per_page: 50 });
  $("found").textContent = `${number(found.total_records)} rollouts, page ${found.page} of ${Math.max(1, found.total_pages)}`;
  keepFocus(() => table($("rollout-table"), "Rollouts", ["rollout", "name", "status", "reward#", "decisions#", "took#", "started (UTC)", "why"],
    found.records.map((row) => [element("a", { href: `#/rollouts/${encodeURIComponent(row.rollout_id)}` }, row.rollout_id), row.name,
      row.status, number(row.reward) + (row.reward_made_up && row.reward !== null ? ` (${row.reward_made_up})` : ""), number(row.steps),
      duration(row.duration_ms), moment(row.started_unix_ms), row.why ?? ""])));
  $("previous").disabled = page <= 1;
  $("next").disabled = page >= found.total_pages;
}

async function queues() {
  const { queue_timeline: buckets } = await load("dashboard/queue-timeline", { minutes: 60 });
  const names = ["enqueued", "claimed", "requeued", "succeeded", "failed", "cancelled", "depth"];
  const used = buckets.some((bucket) => names.some((name) => bucket[name]));
  if (!used) return fill($("queue"), element("p", {}, "No rollout was in a queue within the last hour."));
  const roles = ["all", "learner", "doubtful", "good", "bad", "o4", "muted"];
  const series = names.map((name, index) => ({ label: name, role: roles[index], dashed: name === "depth",
    x: buckets.map((bucket) => bucket.start_unix_ms), y: buckets.map((bucket) => bucket[name]), lower: [], upper: [] }));
  const chart = { kind: "curves", x_label: "time (UTC)", ticks: [], flags: [], rows: [], isTime: true,
    panels: [{ label: "rollouts a minute", scale: "from 0", series: series.slice(0, 6) }, { label: "waiting", scale: "from 0", series: series.slice(6) }] };
  await figure($("queue"), { name: "queue-chart", title: "The last hour", subject: "Queues", text: "", described:
    `Waiting now: ${buckets.at(-1).depth}.`, chart, tables: [{ caption: "By minute", columns: ["minute (UTC)", ...names.map((name) => `${name}#`)],
    rows: buckets.filter((bucket) => names.some((name) => bucket[name])).map((bucket) => [moment(bucket.start_unix_ms), ...names.map((name) => number(bucket[name]))]) }] });
}

const MOVES = { preparing: ["Pause", "Cancel"], running: ["Pause", "Cancel"], paused: ["Resume", "Cancel"] };
const MEANS = { Pause: "No further item is claimed; running attempts end.", Resume: "Its items are claimed again.",
  Cancel: "What it still had to do is not done." };

async function runs() {
  const { runs: found } = await load("dashboard/runs");
  table($("run-table"), found.length ? "Runs, newest first" : "No run is stored", ["run", "kind", "state", "began (UTC)", "items done", "cost#", "outcome", "act"],
    found.map((run) => [run.run_id, run.kind, run.reason_code ? `${run.run_state}: ${run.reason_code}` : run.run_state, moment(run.started_unix_ms),
      `${run.progress.done} of ${run.progress.total}`, run.budget.usd ? `at least $${number(run.budget.usd)}` : "unknown", run.adoption?.reason_code ?? "-",
      element("p", { class: "buttons" }, ...(MOVES[run.run_state] ?? []).map((move) =>
        action(`${move} ${run.run_id}`, { action: move.toLowerCase(), run: run.run_id }, MEANS[move], move === "Cancel")))]));
}

// ---- charts ----

async function drawing() {
  plotly ??= new Promise((done, fail) => {
    const script = element("script", { src: "plotly.js" });
    script.onload = () => done(window.Plotly);
    script.onerror = () => fail(new Error("the charts cannot be loaded"));
    document.head.append(script);
  });
  return plotly;
}

async function charts() {
  const { figures } = await load("dashboard/figures");
  for (const section of figures) {
    const id = `section-${section.name}`;
    if (!$(id)) $("chart-list").append(element("section", { id, "aria-labelledby": `${id}-title` },
      element("h3", { id: `${id}-title` }, section.title), element("p", {}, section.intro), element("div")));
    const node = $(id).lastElementChild;
    for (const one of section.figures) {
      const own = `figure-${one.name}`;
      if (!$(own)) node.append(element("div", { id: own }));
      await figure($(own), one);
    }
  }
}

async function figure(node, one) {
  // the same data again changes nothing, so that what is open stays open
  const content = JSON.stringify(one);
  if (node.dataset.content === content) return;
  node.dataset.content = content;
  const drawn = one.chart ? element("div", { class: "drawn", role: "img", "aria-label": one.described || one.title }) : null;
  const tables = one.tables.map((each) => {
    const inner = element("table");
    table(inner, each.caption, each.columns, each.rows);
    return element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": each.caption }, inner);
  });
  fill(node, element("figure", {}, element("figcaption", {}, element("p", { class: "subject" }, one.subject), element("h4", {}, one.title),
    one.text ? element("p", { class: "sentence" }, one.text) : null), drawn, drawn ? null : element("p", {}, one.described),
    tables.length ? element("details", {}, element("summary", {}, "The numbers"), ...tables) : null));
  if (drawn) await draw(drawn, one.chart);
}

// plotly reads tags and formulas in texts
const safe = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("$", "&#36;");
const FLAGS = { promotion: "triangle-up", rollback: "triangle-down", exposure: "diamond", stop: "x", hold: "square", reset: "circle",
  worse: "triangle-down", better: "triangle-up" };

function colour(role) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${role}`).trim();
}

async function draw(node, chart) {
  const Plotly = await drawing();
  const font = { color: colour("ink"), size: 13 }, grid = colour("grid");
  const layout = { font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 60, r: 12, t: 50, b: 40 },
    height: 280 + 150 * (chart.panels.length - 1) + 20 * chart.rows.length, hovermode: "closest", legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    barmode: "stack", xaxis: { title: { text: safe(chart.x_label) }, gridcolor: grid, zerolinecolor: grid, automargin: true,
      anchor: chart.panels.length > 1 ? `y${chart.panels.length}` : "y" } };
  if (chart.isTime) layout.xaxis.type = "date";
  if (chart.ticks.length) Object.assign(layout.xaxis, { tickvals: chart.ticks.map(([at]) => at),
    ticktext: chart.ticks.map(([, label]) => safe(label).replaceAll("\n", "<br>")) });
  const traces = [], count = chart.panels.length;
  chart.panels.forEach((panel, index) => {
    const name = index ? `y${index + 1}` : "y";
    const top = 1 - index / count;
    const axis = { title: { text: safe(panel.label) }, gridcolor: grid, zerolinecolor: grid, automargin: true,
      domain: [top - 1 / count + (index < count - 1 ? 0.06 : 0), top] };
    if (panel.scale === "percent") Object.assign(axis, { tickformat: ".0%", range: [0, 1] });
    if (panel.scale === "log") axis.type = "log";
    if (panel.scale === "from 0") axis.rangemode = "tozero";
    if (panel.scale === "zero") Object.assign(axis, { zeroline: true, zerolinecolor: colour("muted") });
    if (chart.kind === "bars" && panel.scale === "percent") Object.assign(layout.xaxis, { tickformat: ".0%", range: [0, 1] });
    if (chart.kind === "bars") Object.assign(axis, { autorange: "reversed", tickvals: chart.rows.map((_, at) => at),
      ticktext: chart.rows.map(([label, heads]) => (heads ? `— ${safe(label)} —` : safe(label))) });
    layout[index ? `yaxis${index + 1}` : "yaxis"] = axis;
    if (chart.kind === "areas") Object.assign(axis, { tickformat: ".0%", range: [0, 1] });
    const shares = chart.kind === "areas" || panel.scale === "percent" ? sharesOf(panel.series) : panel.series.map((series) => series.y);
    panel.series.forEach((series, at) => traces.push(...tracesOf(chart, panel, { ...series, share: shares[at] }, name)));
  });
  if (chart.flags.length) {
    layout.shapes = chart.flags.map(([x, kind]) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: colour("muted"), dash: "dot", width: 1 } }));
    traces.push({ x: chart.flags.map(([x]) => x), y: chart.flags.map(() => 1), yaxis: "y9", mode: "markers", type: "scatter", name: "events",
      text: chart.flags.map(([, kind]) => kind), hovertemplate: "%{text}<extra></extra>",
      marker: { symbol: chart.flags.map(([, kind]) => FLAGS[kind] ?? "circle"), color: colour("muted"), size: 9 } });
    layout.yaxis9 = { overlaying: "y", range: [0, 1.02], visible: false, fixedrange: true };
  }
  if (chart.panels.some((panel) => panel.scale === "equal")) {
    const values = traces.flatMap((trace) => [...(trace.x ?? []), ...(trace.y ?? [])]).filter((value) => value !== null);
    const ends = [Math.min(...values), Math.max(...values)];
    traces.push({ x: ends, y: ends, mode: "lines", type: "scatter", name: "equal", line: { color: colour("muted"), dash: "dot", width: 1 } });
  }
  const named = new Set();
  for (const trace of traces.filter((each) => each.showlegend !== false)) {
    trace.showlegend = !named.has(trace.name);
    named.add(trace.name);
  }
  await Plotly.react(node, traces, layout, { displayModeBar: false, responsive: true });
}

function sharesOf(series) {
  const totals = series[0].y.map((_, at) => series.reduce((sum, each) => sum + (each.y[at] ?? 0), 0));
  return series.map((each) => each.y.map((value, at) => (totals[at] > 0 ? (value ?? 0) / totals[at] : 0)));
}

function tracesOf(chart, panel, series, yaxis) {
  const line = { color: colour(series.role), dash: series.dashed ? "dash" : "solid", width: 2 };
  const name = safe(series.label), common = { name, yaxis, type: "scatter", legendgroup: `${panel.label}${series.label}` };
  if (chart.kind === "bars") return [{ name, type: "bar", orientation: "h", x: series.share, y: series.y.map((_, at) => at), marker: { color: line.color } }];
  if (chart.kind === "areas") return [{ ...common, x: series.x, y: series.share.flatMap((value) => [value, value]), stackgroup: "all", mode: "lines", line: { ...line, width: 0 }, fillcolor: line.color }];
  if (chart.kind === "dots") return [{ ...common, x: series.x, y: series.y, mode: "markers", marker: { color: line.color, size: 9, symbol: series.dashed ? "diamond" : "circle" },
    error_y: series.lower.length ? { type: "data", symmetric: false, color: line.color, array: series.upper.map((value, at) => (value ?? series.y[at]) - series.y[at]),
      arrayminus: series.lower.map((value, at) => series.y[at] - (value ?? series.y[at])) } : undefined }];
  const traces = [];
  const known = series.lower.map((value, at) => at).filter((at) => series.lower[at] !== null && series.upper[at] !== null);
  if (known.length > 1) {
    const x = known.map((at) => series.x[at]), soft = { ...common, x, mode: "lines", line: { width: 0 }, showlegend: false, hoverinfo: "skip" };
    traces.push({ ...soft, y: known.map((at) => series.upper[at]) },
      { ...soft, y: known.map((at) => series.lower[at]), fill: "tonexty", fillcolor: `${line.color}33` });
  }
  return [...traces, { ...common, x: series.x, y: series.y, mode: series.x.length > 1 ? "lines" : "markers", line, marker: { color: line.color } }];
}

// ---- one rollout, one decision ----

async function route() {
  const [, kind, id] = /^#\/(rollouts|decisions)\/(.+)$/.exec(location.hash) ?? [];
  $("overview").hidden = Boolean(kind);
  $("detail").hidden = !kind;
  if (!kind) return;
  const back = element("p", {}, element("a", { href: "#rollouts" }, "Back to the overview"));
  try {
    const found = await load(`dashboard/${kind}/${id}`);
    fill($("detail"), back, ...(kind === "rollouts" ? story(found.rollout) : why(found.decision)));
  } catch (error) {
    fill($("detail"), back, element("p", { class: "problem", role: "alert" }, error.message));
  }
  window.scrollTo(0, 0);
  $("detail").querySelector("h2")?.focus();
}

function heading(text) {
  return element("h2", { tabindex: "-1" }, text);
}

function pairs(caption, entries) {
  const node = element("table");
  table(node, caption, ["what", "value"], entries.filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": caption }, node);
}

function story(found) {
  const { rollout, attempts, spans, decisions, rewards, credits, children } = found;
  const began = rollout.started_at ?? Math.min(...spans.map((span) => span.started_at));
  const ends = spans.map((span) => span.ended_at ?? span.started_at);
  const whole = Math.max(1e-9, Math.max(rollout.ended_at ?? 0, ...ends) - began);
  const parents = new Map(spans.map((span) => [span.span_id, span.parent_span_id]));
  const depth = (id) => {
    let count = 0;
    for (let at = parents.get(id), seen = new Set([id]); at && parents.has(at) && !seen.has(at); at = parents.get(at)) {
      seen.add(at);
      count += 1;
    }
    return Math.min(count, 12);
  };
  const steps = inOrder(spans).map((span) => {
    const bar = element("i"), failed = span.status === "error";
    bar.style.left = `${Math.max(0, Math.min(100, (100 * (span.started_at - began)) / whole))}%`;
    bar.style.width = `${Math.max(0, Math.min(100, (100 * ((span.ended_at ?? span.started_at) - span.started_at)) / whole))}%`;
    const item = element("li", { class: failed ? "failed" : null }, element("details", {}, element("summary", {},
      element("span", { class: "kind" }, span.kind), element("strong", {}, span.name),
      element("span", { class: failed ? "error" : "kind" }, span.ended_at === null ? "open" : span.status),
      element("span", {}, `+${duration(1000 * (span.started_at - began))}`),
      element("span", {}, span.ended_at === null ? "" : duration(1000 * (span.ended_at - span.started_at))),
      element("span", { class: "track", "aria-hidden": "true" }, bar)), ...content(span)));
    item.style.paddingLeft = `${depth(span.span_id)}rem`;
    return item;
  });
  const credited = new Map(credits.map((credit) => [credit.decision_id, credit]));
  const made = element("table");
  table(made, "Decisions", ["decision", "point", "applied", "probability#", "by", "advantage#"], decisions.map((decision) => [
    element("a", { href: `#/decisions/${encodeURIComponent(decision.decision_id)}` }, `why ${decision.attempt}:${decision.ordinal}`), decision.point,
    decision.applied, number(decision.propensity), decision.why_not ?? `${decision.source}, ${decision.arm}`, number(credited.get(decision.decision_id)?.advantage)]));
  const given = element("table");
  table(given, "Rewards", ["name", "value#", "by", "when (UTC)", "comment"], rewards.map((reward) => [reward.name, number(reward.value), reward.source,
    moment(1000 * reward.at), reward.comment ?? ""]));
  return [heading(`Rollout ${rollout.rollout_id}`), pairs("The rollout", [["name", rollout.name], ["host", rollout.host],
    ["status", rollout.status], ["why", rollout.error_type ?? rollout.reason], ["error", attempts.map((attempt) => attempt.error_message).filter(Boolean).join("; ")],
    ["reward", number(rollout.total_reward) + (madeUp(rewards) && rollout.total_reward !== null ? ` (${madeUp(rewards)})` : "")], ["started (UTC)", moment(rollout.started_at && 1000 * rollout.started_at)],
    ["took", rollout.ended_at ? duration(1000 * (rollout.ended_at - rollout.started_at)) : "open"], ["attempts", attempts.length],
    ["session", rollout.session_id], ["mode", rollout.mode], ["queue", rollout.queue],
    ...["input", "output"].map((name) => [name, rollout[name] === null ? null : element("pre", {}, typeof rollout[name] === "string" ? rollout[name] : JSON.stringify(rollout[name], null, 2))]), ["metadata", Object.keys(rollout.metadata).length ? element("pre", {}, JSON.stringify(rollout.metadata, null, 2)) : null]]),
    element("h3", {}, "What happened"), element("ol", { class: "waterfall" }, ...steps),
    element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Decisions" }, made),
    element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Rewards" }, given),
    children.length ? element("p", {}, "Ran inside it: ", ...children.flatMap((id) => [element("a", { href: `#/rollouts/${encodeURIComponent(id)}` }, id), " "])) : null]
    .filter(Boolean);
}

function madeUp(rewards) {
  const sources = new Set(rewards.filter((reward) => reward.value !== null).map((reward) => reward.source));
  const given = [...sources].some((source) => source !== "inferred" && source !== "default");
  return sources.size && !given ? [...sources].sort().at(-1) : null;
}

function inOrder(spans) {
  // each before what is inside it, in the order in which they began
  const known = new Set(spans.map((span) => span.span_id)), children = new Map();
  for (const span of spans) {
    const parent = known.has(span.parent_span_id) && span.parent_span_id !== span.span_id ? span.parent_span_id : "";
    children.set(parent, [...(children.get(parent) ?? []), span]);
  }
  const seen = new Set(), ordered = [];
  const stack = (children.get("") ?? []).toSorted((a, b) => b.started_at - a.started_at);
  while (stack.length) {
    const span = stack.pop();
    if (seen.has(span.span_id)) continue;
    seen.add(span.span_id);
    ordered.push(span);
    stack.push(...(children.get(span.span_id) ?? []).toSorted((a, b) => b.started_at - a.started_at));
  }
  return [...ordered, ...spans.filter((span) => !seen.has(span.span_id))];
}

function content(span) {
  const texts = Object.entries(span.attributes).filter(([, value]) => value && typeof value.text === "string");
  const rest = Object.fromEntries(Object.entries(span.attributes).filter(([name]) => !texts.some(([text]) => text === name)));
  const { error } = span.attributes;
  return [error ? element("p", { class: "error" }, [error.type, error.message].filter(Boolean).join(": ") || "error") : null,
    ...texts.flatMap(([name, value]) => [element("h4", {}, name), element("pre", {}, value.text)]),
    span.kind === "decision" ? element("p", {}, element("a", { href: `#/decisions/${encodeURIComponent(span.span_id)}` }, "why")) : null,
    Object.keys(rest).length ? element("pre", {}, JSON.stringify(rest, null, 2)) : element("p", { class: "kind" }, "no attributes")].filter(Boolean);
}

function why(found) {
  const { decision } = found, rows = element("table");
  const again = found.recomputed.probabilities ?? [];
  table(rows, "Options", ["option", "probability#", "recomputed#", "role"], decision.options.map((option, index) => [option,
    number(decision.probabilities[index]), number(again[index]), [decision.chosen === option ? "chosen" : "", decision.applied === option ? "applied" : "",
      decision.default === option ? "host's own" : ""].filter(Boolean).join(", ")]));
  const credit = Object.entries(found.credit ?? {}).filter(([, value]) => value !== null).map(([name, value]) => [name, typeof value === "number" ? number(value) : String(value)]);
  return [heading(`Decision ${decision.decision_id}`), ...found.sentences.map((sentence) => element("p", {}, sentence)),
    element("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Options" }, rows),
    pairs("The decision", [["point", decision.point], ["version", number(decision.policy_version)], ["propensity", number(decision.propensity)],
      ["exposure", number(found.share)], ["gate", found.gate], ["expected return", number(decision.value)],
      ["context", Object.keys(decision.context).length ? element("pre", {}, JSON.stringify(decision.context, null, 2)) : null]]),
    credit.length ? pairs("Credit", credit) : null,
    element("p", {}, element("a", { href: `#/rollouts/${encodeURIComponent(decision.rollout_id)}` }, "Its rollout"))].filter(Boolean);
}

// ---- actions ----

function action(label, body, meaning, strong = false) {
  return element("button", { class: strong ? "strong" : null, onclick: () => ask(label, body, meaning) }, label);
}

function ask(label, body, meaning) {
  const dialog = $("asking"), form = $("asking-form"), from = document.activeElement?.textContent;
  const exposes = body.action === "exposure";
  let sure = false;
  form.reset();
  $("asking-title").textContent = label;
  $("asking-text").textContent = meaning;
  $("asking-problem").textContent = "";
  $("asking-go").textContent = "Continue";
  $("asking-reason").hidden = $("asking-token").hidden = false;
  $("asking-token").hidden = true;
  form.elements.reason.required = true;
  $("asking-share").hidden = !exposes;
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (!sure) {
      sure = true;
      $("asking-text").textContent = `${meaning} Do it now?`;
      $("asking-go").textContent = `Confirm: ${label}`;
      return;
    }
    const order = { ...body, reason: form.elements.reason.value };
    if (exposes) order.share = Number(form.elements.share.value);
    try {
      const response = await fetch(address("dashboard/actions"), { method: "POST", body: JSON.stringify(order),
        headers: headers({ "content-type": "application/json", "x-tau-csrf": csrf }) });
      const done = await answer(response);
      dialog.close();
      controls(done.control);
      refreshed = 0;
      refresh();
      $("connection").textContent = `${label}: done, recorded as ${done.actor}`;
    } catch (error) {
      $("asking-problem").textContent = error.message;
    }
  };
  dialog.onclose = () => [...document.querySelectorAll("button")].find((node) => node.textContent === from)?.focus();
  dialog.showModal();
  form.elements.reason.focus();
}

async function askForToken() {
  const dialog = $("asking"), form = $("asking-form");
  if (dialog.open) return;
  form.reset();
  $("asking-title").textContent = "Token";
  $("asking-text").textContent = "This dashboard asks for the token of its --token-file.";
  $("asking-reason").hidden = $("asking-share").hidden = true;
  form.elements.reason.required = false;
  $("asking-token").hidden = false;
  $("asking-problem").textContent = sessionStorage.getItem(TOKEN) ? "That is not the token." : "";
  $("asking-go").textContent = "Sign in";
  form.onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, form.elements.token.value);
    dialog.close();
    stream();
    route();
  };
  dialog.onclose = null;
  dialog.showModal();
}

$("asking-cancel").addEventListener("click", () => $("asking").close());
$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  page = 1;
  rollouts();
});
$("previous").addEventListener("click", () => { page -= 1; rollouts(); });
$("next").addEventListener("click", () => { page += 1; rollouts(); });
$("store").addEventListener("change", () => {
  const own = new URL(location.href);  // a link names the store
  own.searchParams.set("store", $("store").value);
  history.replaceState(null, "", own);
  last = null;
  page = 1;
  refreshed = 0;
  $("chart-list").replaceChildren();
  stream();
  route();
});
window.addEventListener("hashchange", route);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.querySelectorAll("[data-content]").forEach((node) => { delete node.dataset.content; });
  refreshed = 0;
  refresh();
});
const asked = new URL(location.href).searchParams.get("store");
if ([...$("store").options].some((option) => option.value === asked)) $("store").value = asked;
route();
stream();
