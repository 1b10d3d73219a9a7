// The live page: asks for the state once a second, and shows it, as text and nothing else.

const $ = (id) => document.getElementById(id);
const on = (id, event, act) => $(id).addEventListener(event, act);
const ROOT = document.documentElement;
const SVG = "http://www.w3.org/2000/svg";
const EVERY = 1000, SLOWEST = 10000, PATIENCE = 8000, MOST_ROWS = 500;
const HEADS = document.querySelectorAll("th[data-sort]");
const DARK = matchMedia("(prefers-color-scheme: dark)");
const KEY = "tower-sentinel " + location.pathname;

const view = { n: 50, sort: "refused", q: "", focus: "", direction: "" };
const before = new Map(), inFlight = new Map();
/** The classes of each resource, as they were at the last 60 looks. */
const classLooks = new Map();
let state = null;
let paused = false, failures = 0, timer = 0, running = null, lastAnswer = 0;
let token = sessionStorage.getItem(KEY) || "";

/** Shows characters that hide or turn text as codes. */
const visible = (text) => String(text).replace(/(?! )[\p{C}\p{Z}]/gu, (c) => "\\u{" + c.codePointAt().toString(16) + "}");

function made(node, attributes = {}, children) {
	for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
	node.append(...children.map((it) => (typeof it === "string" ? visible(it) : it)));
	return node;
}

const element = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);

function setText(node, text) {
	text = visible(text);
	if (node.textContent !== text) node.textContent = text;
}

/** Whether `node` was not made of this before. */
function isNew(node, made) {
	const { of } = node.dataset;
	return of !== (node.dataset.of = JSON.stringify(made));
}

function note(id, text) {
	$(id).hidden = !text;
	setText($(id), text);
}

function number(n) {
	if (n == null) return "–";
	if (n >= 1e6) return (n / 1e6).toFixed(1) + " M";
	if (n >= 1e4) return (n / 1e3).toFixed(1) + " k";
	return String(n >= 10 ? Math.round(n) : Math.round(n * 10) / 10);
}

function duration(ms) {
	if (ms == null) return "–";
	const [s, m, h] = [1e3, 6e4, 36e5].map((unit) => Math.floor(ms / unit));
	if (s < 60) return s + " s";
	if (m < 60) return m + " min";
	if (h < 24) return h + " h " + (m % 60) + " min";
	return Math.floor(h / 24) + " d " + (h % 24) + " h";
}

const timeOf = (ms) => new Date(ms).toLocaleTimeString();
const bytes = (n) => (n >= 2 ** 30 ? (n / 2 ** 30).toFixed(1) + " GiB" : Math.round(n / 2 ** 20) + " MiB");
const percent = (share) => (share == null ? "–" : Math.round(share * 100) + " %");
const keyOf = (it) => it.direction + " " + it.resource;
const shownName = (it) => visible(it.resource) + (it.direction === "outbound" ? " (outbound)" : "");
const peak = (list) => Math.max(0, ...list);

function schedule(delay) {
	clearTimeout(timer);
	if (!paused && !document.hidden) timer = setTimeout(poll, delay);
}

async function poll() {
	clearTimeout(timer);
	running?.abort();
	const mine = running = new AbortController();
	const late = setTimeout(() => mine.abort(), PATIENCE);
	try {
		const query = new URLSearchParams(view);
		const headers = token ? { Authorization: "Bearer " + token } : {};
		const answer = await fetch("?state&" + query, { headers, signal: mine.signal, cache: "no-store" });
		if (answer.status === 401) return askForToken();
		if (!answer.ok) throw new Error((await answer.text()).trim() || "status " + answer.status);
		const next = await answer.json();
		if (running !== mine) return;
		failures = 0;
		lastAnswer = Date.now();
		show(next);
		tellStatus();
		schedule(EVERY);
	} catch (error) {
		if (running !== mine) return;
		failures += 1;
		const delay = Math.min(EVERY * 2 ** (failures - 1), SLOWEST);
		tellStatus(error.name === "AbortError" || error instanceof TypeError ? "" : error.message);
		schedule(delay);
	} finally {
		clearTimeout(late);
		if (running === mine) running = null;
	}
}

function tellStatus(why) {
	const status = $("status");
	if (failures > 0) {
		status.dataset.state = "lost";
		const since = lastAnswer ? " since " + timeOf(lastAnswer) : "";
		setText(status, why || "no answer" + since + ", trying again");
	} else {
		status.dataset.state = paused ? "wait" : "live";
		setText(status, paused ? "paused" : "live, every second");
	}
}

function askForToken() {
	$("ask").hidden = false;
	$("all").hidden = true;
	setText($("token-why"), token ? "That is not the token." : "");
	$("status").dataset.state = "wait";
	setText($("status"), "waiting for the token");
	$("token").focus();
}

function show(next) {
	if (state && next.up < state.up) {
		before.clear();
		inFlight.clear();
	}
	state = next;
	$("ask").hidden = true;
	$("all").hidden = false;
	setText($("title"), state.title);
	document.title = visible(state.title ? state.title + " – " : "") + "tower-sentinel";
	setText($("up"), "up " + duration(state.up * 1000));
	setText($("footer"), "tower-sentinel " + state.version);
	showTiles();
	showFindings();
	showFocus();
	showRows();
	showBreakers();
	showRules();
	showSystem();
	document.dispatchEvent(new CustomEvent("state", { detail: { state, token, visible } }));
}

/** Fills a list with names, texts, and whether they are bad. */
function fillTerms(list, figures) {
	while (list.children.length > figures.length) list.lastChild.remove();
	figures.forEach(([name, text, isBad], place) => {
		const old = list.children[place];
		const tile = old || element("div", {}, element("dt"), element("dd"));
		if (!old) list.append(tile);
		tile.className = isBad ? "bad" : "";
		setText(tile.firstChild, name);
		setText(tile.lastChild, text);
	});
}

function showTiles() {
	const now = state.now, cpu = state.system.cpu;
	const tiles = [
		["pass/s", number(now.pass_qps)],
		["refused/s", number(now.block_qps), now.block_qps > 0],
		["failed/s", number(now.error_qps), now.error_qps > 0],
		["in flight", number(now.concurrency)],
		["waiting", number(now.waiting)],
	];
	if (cpu != null) tiles.push(["CPU", percent(cpu)]);
	fillTerms($("tiles"), tiles);
}

const ASIDE = "tower-sentinel-findings", nameOf = (it) => [it.kind, it.rule, it.resource].join("\n");
let aside = []; // What somebody has read and put aside, in this browser.
try { aside = JSON.parse(localStorage.getItem(ASIDE)) || []; } catch { /* It keeps nothing. */ }

function setAside(names) {
	aside = names;
	try { localStorage.setItem(ASIDE, JSON.stringify(names)); } catch { /* Until it is closed. */ }
	showFindings();
}

function showFindings() {
	const shown = state.findings.list.filter((it) => !aside.includes(nameOf(it)));
	const hidden = state.findings.list.length - shown.length, count = state.findings.count - hidden;
	$("findings").hidden = count + hidden === 0;
	setText($("findings-h"), count === 1 ? "1 finding: a mistake in the set-up?" : count + " findings: mistakes in the set-up?");
	const items = $("findings-list"), lines = shown.map((it) => [it.text, "put aside", () => setAside([...aside, nameOf(it)])]);
	if (count > shown.length) lines.push(["and " + (count - shown.length) + " more"]);
	if (hidden > 0) lines.push([hidden + " put aside", "show", () => setAside([])]);
	if (!isNew(items, lines)) return;
	items.replaceChildren(...lines.map(([text, act, onclick]) => {
		const button = act && Object.assign(element("button", { type: "button" }, act), { onclick });
		return element("li", {}, text + " ", ...(act ? [button] : []));
	}));
}

const CALLS = [
	{ name: "pass", color: "pass", width: 2, fill: true },
	{ name: "refused", color: "refused", dash: [6, 3], width: 2 },
	{ name: "failed", color: "failed", dash: [2, 3], width: 2 },
	{ name: "limit", color: "muted", dash: [10, 4, 2, 4], width: 1 },
];
const RT = [
	{ name: "avg RT", unit: " ms", color: "pass", width: 2, scale: "ms", fill: true },
	{ name: "in flight", color: "failed", dash: [6, 3], width: 2, scale: "n" },
];
const plots = {};

function makePlot(id, series) {
	const box = $("plot-" + id), legend = $("legend-" + id);
	const style = getComputedStyle(ROOT);
	const color = (name) => style.getPropertyValue("--" + name).trim();
	if (plots[id]) plots[id].plot.destroy();
	legend.replaceChildren(...series.map((it) => {
		const line = svg("line", {
			x1: 0, x2: 26, y1: 5, y2: 5, stroke: color(it.color), "stroke-width": it.width,
			"stroke-dasharray": (it.dash || []).join(" "),
		});
		const sample = svg("svg", { width: 26, height: 10, "aria-hidden": "true" }, line);
		return element("li", {}, sample, it.name + " ", element("b", {}));
	}));
	const axis = (scale, side) => ({
		scale, side, stroke: color("muted"), size: 44, font: "12px system-ui, sans-serif",
		grid: { stroke: color("line"), width: 1, show: side === 3 }, ticks: { show: false },
		values: (_, values) => values.map((n) => (n == null ? "" : number(n))),
	});
	const fromZero = (least) => (_, min, max) => [0, Math.max(least, (max || 0) * 1.1)];
	const scales = series.some((it) => it.scale)
		? { ms: { range: fromZero(10) }, n: { range: fromZero(4) } }
		: { y: { range: fromZero(4) } };
	const [left, right] = Object.keys(scales);
	const time = {
		...axis("x", 2), size: 28, space: 90, grid: { show: false },
		values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString([], { timeStyle: "medium" })),
	};
	const options = {
		width: box.clientWidth || 300, height: 190, legend: { show: false },
		cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
		scales,
		axes: [time, axis(left, 3), ...(right ? [axis(right, 1)] : [])],
		series: [{}, ...series.map((it) => ({
			label: it.name, scale: it.scale || "y", stroke: color(it.color), width: it.width, dash: it.dash,
			fill: it.fill ? color("fill") : undefined, points: { show: false },
		}))],
		hooks: { setCursor: [() => fillLegend(id)] },
	};
	const data = plots[id]?.data;
	plots[id] = { series, data, plot: new uPlot(options, data || [[]], box) };
}

function fillLegend(id) {
	const it = plots[id];
	if (!it || !it.data) return;
	const at = it.plot.cursor.idx ?? it.data[0].length - 1;
	it.series.forEach((series, place) => {
		const value = it.data[place + 1][at];
		const text = value == null ? "–" : number(value) + (series.unit || "");
		const item = $("legend-" + id).children[place];
		setText(item.lastChild, text);
		item.hidden = series.name === "limit" && value == null;
	});
}

function fillPlot(id, series, data, summary) {
	if (!plots[id]) makePlot(id, series);
	plots[id].data = data;
	plots[id].plot.setData(data);
	fillLegend(id);
	$("plot-" + id).setAttribute("aria-label", summary);
}

function showFocus() {
	const focus = state.focus, seconds = focus.seconds;
	const row = state.resources.nodes.find((it) => it.resource === focus.resource && it.direction === focus.direction);
	const limit = row?.limit_qps;
	fillFocusChoice();
	const parts = [];
	if (limit != null) parts.push("limit " + number(limit) + "/s");
	if (row?.limit_concurrency != null) parts.push("limit " + number(row.limit_concurrency) + " at once");
	if (!seconds) parts.push("no seconds are kept of it");
	setText($("focus-limit"), parts.join(", "));
	const end = Math.round((Date.now() - state.second_age) / 1000) - 1;
	const times = Array.from({ length: 60 }, (_, place) => end - 59 + place);
	const none = times.map(() => null);
	inFlight.set(end, (focus.resource ? row : state.now)?.concurrency);
	for (const at of inFlight.keys()) if (at < times[0]) inFlight.delete(at);
	const running = times.map((at) => inFlight.get(at) ?? null);
	const { pass, block, error, average_rt: rt } = seconds || { pass: none, block: none, error: none, average_rt: none };
	const calls = "now " + number(pass[59]) + " passed and " + number(block[59]) + " refused a second, at most "
		+ number(peak(pass)) + " and " + number(peak(block));
	fillPlot("calls", CALLS, [times, pass, block, error, limit == null ? none : times.map(() => limit)], calls);
	fillPlot("rt", RT, [times, rt, running], "average response time now " + number(rt[59]) + " ms, at most " + number(peak(rt)));
}

function fillFocusChoice() {
	const select = $("focus"), known = new Map();
	const own = { resource: view.focus, direction: view.direction };
	for (const it of [...state.resources.nodes, own]) if (it.resource) known.set(keyOf(it), shownName(it));
	const names = [["", "all resources"], ...[...known].sort((a, b) => a[1].localeCompare(b[1]))];
	if (document.activeElement !== select && isNew(select, names)) {
		select.replaceChildren(...names.map(([value, name]) => new Option(name, value)));
	}
	select.value = view.focus && keyOf(own);
}

/** Gives `body` one row for each item, in their order; rows stay the same elements. */
function fillTable(body, items, key, make, fill) {
	const rows = new Map([...body.children].map((row) => [row.dataset.key, row]));
	const active = document.activeElement;
	let place = body.firstElementChild;
	for (const item of items) {
		const name = key(item);
		let row = rows.get(name);
		rows.delete(name);
		if (!row) {
			row = make(item);
			row.dataset.key = name;
		}
		if (row === place) place = place.nextElementSibling;
		else body.insertBefore(row, place);
		fill(row, item);
	}
	for (const row of rows.values()) row.remove();
	if (active && active !== document.activeElement && body.contains(active)) active.focus({ preventScroll: true });
}

/** A row of `body`, with the labels of its table and a class for each cell. */
function makeRow(body, head, ...classes) {
	const labels = body.parentNode.rows[0].cells;
	const cells = classes.map((kind, place) =>
		element("td", { role: "cell", "data-label": labels[place + 1].textContent, class: kind }));
	return element("tr", { role: "row" }, element("th", { role: "rowheader", scope: "row" }, head), ...cells);
}

function spark() {
	const area = svg("path", { class: "area" }), refused = svg("polyline", { class: "refused" });
	return svg("svg", { class: "spark", viewBox: "0 0 118 26", preserveAspectRatio: "none", role: "img" }, area, refused);
}

function fillSpark(image, seconds) {
	const { pass, block } = seconds || { pass: [], block: [] };
	const most = Math.max(peak(pass), peak(block), 1);
	const points = (list) => list.map((n, place) => place * 2 + "," + (25 - (n / most) * 23).toFixed(1)).join(" ");
	image.children[0].setAttribute("d", pass.length ? "M0,26 L" + points(pass) + " L118,26 Z" : "");
	image.children[1].setAttribute("points", peak(block) > 0 ? points(block) : "");
	const words = seconds
		? "passed up to " + number(peak(pass)) + " a second, refused up to " + number(peak(block))
		: "no seconds are kept";
	image.setAttribute("aria-label", words);
}

/** Of which kind most of the latest refusals were. */
function reason(row) {
	const by = row.totals.block_by, known = before.get(keyOf(row)) || { by: {}, most: "" };
	let { most } = known, count = 0;
	for (const [kind, now] of Object.entries(by)) {
		const more = now - (known.by[kind] || 0);
		if (more > count) [count, most] = [more, kind];
	}
	before.set(keyOf(row), { by, most });
	return most;
}

/** A mark for each class, the most important first, and how many of those that are shut were refused in the last minute. */
function showClasses(place, row) {
	if (!row.classes) return setText(place, "");
	const key = keyOf(row), looks = [...(classLooks.get(key) || []), row.classes].slice(-60);
	classLooks.set(key, looks);
	const shut = [], words = [], marks = { open: "\u25cf", marginal: "\u25d0", excess: "\u25cb" };
	row.classes.forEach((now, place) => {
		words.push(now.criticality + ": " + now.state + ", up to " + now.bound + " in flight");
		const then = looks[0][place], blocked = now.blocked - then.blocked, all = now.admitted - then.admitted + blocked;
		if (now.state !== "open") shut.push((all > 0 ? Math.round(100 * blocked / all) : 0) + " % of " + now.criticality);
	});
	place.className = shut.length ? "state open" : "muted";
	place.title = words.join("\n");
	const refused = shut.length ? " refused: " + shut.reverse().join(", ") : "";
	setText(place, row.classes.map((now) => marks[now.state]).join("") + refused);
}

function showRows() {
	const { nodes, matching, listed } = state.resources;
	const shown = nodes.length + " of " + matching + " shown";
	const hidden = state.unlisted ? ", " + state.unlisted + " that callers named are not" : "";
	setText($("shown"), shown + (matching < listed ? " (" + listed + " in all)" : "") + hidden);
	$("more").hidden = nodes.length >= matching || view.n >= MOST_ROWS;
	const none = view.q ? "No resource has that in its name." : "No resource has been called yet.";
	note("no-rows", nodes.length ? "" : none);
	const make = (item) => {
		const button = element("button", { type: "button" }, shownName(item));
		button.addEventListener("click", () => setFocus(item.resource, item.direction));
		const row = makeRow($("rows"), button, "wide", "n", "", "n", "n", "n");
		row.firstChild.append(" ", element("span", {}), " ", element("span", {}));
		row.children[1].append(spark());
		return row;
	};
	fillTable($("rows"), nodes, keyOf, make, (row, item) => {
		const [head, minute, pass, refused, failed, rt, running] = row.children;
		const isFocus = item.resource === view.focus && item.direction === view.direction;
		row.toggleAttribute("data-focus", isFocus);
		head.firstChild.setAttribute("aria-pressed", String(isFocus));
		const isTripped = item.breaker && item.breaker !== "closed";
		head.lastChild.className = isTripped ? "state " + item.breaker : "";
		setText(head.lastChild, isTripped ? "breaker " + item.breaker : "");
		showClasses(head.children[1], item);
		fillSpark(minute.firstChild, item.seconds);
		setText(pass, number(item.pass_qps) + (item.limit_qps != null ? " / " + number(item.limit_qps) : ""));
		const why = reason(item);
		setText(refused, number(item.block_qps) + (item.block_qps > 0 ? " " + why : ""));
		refused.classList.toggle("is-refused", item.block_qps > 0);
		setText(failed, number(item.error_qps));
		failed.classList.toggle("is-failed", item.error_qps > 0);
		setText(rt, number(item.average_rt));
		const most = item.limit_concurrency != null ? " / " + number(item.limit_concurrency) : "";
		setText(running, number(item.concurrency) + most + (item.waiting ? ", " + number(item.waiting) + " wait" : ""));
	});
	const shownKeys = new Set(nodes.map(keyOf));
	for (const key of before.keys()) if (!shownKeys.has(key)) before.delete(key);
	for (const key of classLooks.keys()) if (!shownKeys.has(key)) classLooks.delete(key);
}

function showBreakers() {
	const { count, list, unlisted_open: hidden } = state.breakers;
	$("breakers").hidden = count === 0 && hidden === 0;
	const notes = [];
	if (hidden) notes.push(hidden + " more not closed, of resources that callers named");
	if (count > list.length) notes.push(count - list.length + " more not shown");
	note("breakers-note", notes.join("; "));
	const body = $("breaker-rows");
	const key = (item) => keyOf(item) + " " + item.rule;
	fillTable(body, list, key, (item) => makeRow(body, shownName(item), "", "wide", "n", "n", "n"), (row, item) => {
		const [, rule, status, bad, last, probe] = row.children;
		setText(rule, item.rule);
		if (!status.firstChild) status.append(element("span", {}));
		status.firstChild.className = "state " + item.state;
		setText(status.firstChild, item.state + " " + duration(item.in_state_for));
		setText(bad, item.bad_calls + ", opened " + item.opened + "×");
		setText(last, item.since_last_bad_call == null ? "–" : timeOf(Date.now() - item.since_last_bad_call));
		const isForced = item.state === "open" && item.retry_after == null;
		setText(probe, item.retry_after != null ? "in " + duration(item.retry_after + 999) : isForced ? "next call, or by hand" : "–");
	});
}

function showRules() {
	const { count, list, would_block: together, since } = state.rules;
	const notes = [count === 0 ? "There are no rules." : "In force since " + timeOf(since) + "."];
	for (const it of state.sources) if (it.last_poll && !it.error) notes.push(it.name + " read " + timeOf(it.last_poll) + ", ok.");
	const failed = state.sources.filter((it) => it.error).map((it) => it.name + ": " + it.error);
	note("rules-failed", failed.join("; "));
	if (together != null) notes.push("All rules only watch. They would have refused " + number(together) + ".");
	if (count > list.length) notes.push(list.length + " of " + count + " are shown.");
	setText($("rules-note"), notes.join(" "));
	const body = $("rule-rows");
	const make = (item) => makeRow(body, item.id, "n", "", "wide", "n", "");
	fillTable(body, list, (item) => item.id, make, (row, item) => {
		const [, kind, resource, limit, refused, keys] = row.children;
		setText(kind, item.kind);
		setText(resource, item.resource);
		if (!limit.firstChild) limit.append(element("span", {}), " ", element("span", {}));
		setText(limit.firstChild, item.limit);
		limit.children[1].className = item.is_shadow ? "state shadow" : "";
		setText(limit.children[1], item.is_shadow ? "shadow" : "");
		const blocked = item.blocked != null ? number(item.blocked) : "–";
		setText(refused, item.is_shadow ? "would: " + number(item.would_block) : blocked);
		const parts = [];
		if (item.overflows) parts.push(number(item.overflows) + " without a place");
		if (item.missing) parts.push(number(item.missing) + " calls without a key");
		setText(keys, parts.join(", ") || (item.overflows == null ? "–" : "all have a place"));
		keys.classList.toggle("is-failed", parts.length > 0);
	});
}

function showSystem() {
	const system = state.system, terms = [];
	if (system.load != null) terms.push(["load", number(system.load)]);
	if (system.cpu != null) terms.push(["CPU", percent(system.cpu)]);
	if (system.memory != null) terms.push(["memory", bytes(system.memory) + " / " + bytes(system.memory_limit)]);
	if (state.store) terms.push(["store", state.store.state, state.store.state === "down"]);
	terms.push(
		["resources", number(system.resources)],
		["origins and contexts", number(system.origins)],
		["evicted", number(system.evicted)],
		["without a place", number(system.overflowed), system.overflowed > 0],
	);
	fillTerms($("system"), terms);
}

function changed() {
	const hash = new URLSearchParams();
	for (const [name, value] of Object.entries(view)) if (value !== "" && name !== "n") hash.set(name, value);
	history.replaceState(null, "", "#" + hash);
	$("sort").value = view.sort;
	for (const head of HEADS) {
		if (head.dataset.sort === view.sort) head.setAttribute("aria-sort", view.sort === "name" ? "ascending" : "descending");
		else head.removeAttribute("aria-sort");
	}
}

function ask() {
	changed();
	poll();
}

function setFocus(resource, direction) {
	const isSame = resource === view.focus && direction === view.direction;
	view.focus = isSame ? "" : resource;
	view.direction = isSame || !resource ? "" : direction;
	inFlight.clear();
	ask();
}

function setSort(sort) {
	view.sort = sort;
	ask();
}

/** Sets the theme; `auto` is that of the system. */
function setTheme(theme) {
	const isDark = theme === "dark" || (theme === "auto" && DARK.matches);
	ROOT.dataset.theme = isDark ? "dark" : "light";
	setText($("theme"), "Theme: " + theme);
	$("theme").dataset.theme = theme;
	localStorage.setItem("tower-sentinel theme", theme);
	redraw();
}

function redraw() {
	for (const [id, it] of Object.entries(plots)) makePlot(id, it.series), fillLegend(id);
}

on("pause", "click", () => {
	paused = !paused;
	$("pause").setAttribute("aria-pressed", String(paused));
	setText($("pause"), paused ? "Resume" : "Pause");
	if (paused) {
		clearTimeout(timer);
		running?.abort();
		running = null;
	}
	tellStatus();
	if (!paused) poll();
});
on("theme", "click", () => {
	const themes = ["auto", "light", "dark"];
	setTheme(themes[(themes.indexOf($("theme").dataset.theme) + 1) % themes.length]);
});
on("focus", "change", () => {
	const [direction, ...rest] = $("focus").value.split(" ");
	view.focus = view.direction = "";
	setFocus(rest.join(" "), direction);
});
on("filter", "input", () => {
	view.q = $("filter").value;
	ask();
});
on("sort", "change", () => setSort($("sort").value));
for (const head of HEADS) {
	const { sort } = head.dataset;
	$("sort").append(new Option("by " + head.textContent, sort));
	head.firstChild.addEventListener("click", () => setSort(sort));
}
on("more", "click", () => {
	view.n = Math.min(view.n + 150, MOST_ROWS);
	ask();
});
on("token-form", "submit", (event) => {
	event.preventDefault();
	token = $("token").value.trim();
	$("token").value = "";
	sessionStorage.setItem(KEY, token);
	poll();
});
document.addEventListener("visibilitychange", () => {
	if (document.hidden) clearTimeout(timer);
	else if (!paused) poll();
});
DARK.addEventListener("change", () => setTheme($("theme").dataset.theme));
new ResizeObserver(() => {
	for (const [id, it] of Object.entries(plots)) {
		const width = $("plot-" + id).clientWidth;
		if (width && width !== it.plot.width) it.plot.setSize({ width, height: 190 });
	}
}).observe(document.body);

// Tables stay tables also as the grids of a phone.
for (const [name, role] of [["table", "table"], ["thead, tbody", "rowgroup"], ["tr", "row"], ["th", "columnheader"]]) {
	for (const node of document.querySelectorAll(name)) {
		node.setAttribute("role", role);
		if (role === "columnheader") node.scope = "col";
	}
}
for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
	if (name in view && name !== "n") view[name] = value;
}
$("filter").value = view.q;
setTheme(localStorage.getItem("tower-sentinel theme") || "auto");
ask();
