// Changing rules and breakers, where the server allows it.

const $ = (id) => document.getElementById(id);
const on = (id, event, act) => $(id).addEventListener(event, act);
let token = "", version = "", state, visible = String;

async function send(query, body, more) {
	const headers = { Authorization: "Bearer " + token, ...more };
	if (body != null) headers["Content-Type"] = "application/json";
	const method = body == null ? "GET" : "POST";
	const answer = await fetch("?" + query, { method, body, headers, cache: "no-store" });
	const text = await answer.text();
	let json;
	try {
		json = JSON.parse(text);
	} catch {
		json = { error: text.trim() || "status " + answer.status };
	}
	return { isGood: answer.ok, version: answer.headers.get("etag"), text, json };
}

function tell(...lines) {
	$("edit-told").replaceChildren(...lines.map((line) => {
		const item = document.createElement("li");
		item.textContent = visible(line);
		return item;
	}));
}

/** What an answer says, and whether it changes anything. */
function report({ error, problems = [], diff }, before = []) {
	const changes = (diff || []).map((it) => {
		const name = it.kind + " " + it.resource + (it.rule ? " (" + it.rule + ")" : "");
		if (it.before == null) return "new: " + name + ": " + it.after;
		return it.after == null ? "gone: " + name + ": " + it.before : name + ": " + it.before + " → " + it.after;
	});
	if (diff && !changes.length) changes.push("These are the rules in force.");
	tell(...before, ...(error ? [error] : []), ...problems.map((it) => it.text), ...changes);
	return diff && diff.length > 0;
}

async function load() {
	const loaded = await send("rules");
	if (!loaded.isGood) return tell(loaded.json.error);
	version = loaded.version;
	$("edit-text").value = loaded.text;
	$("edit-apply").disabled = true;
	tell();
}

async function check() {
	$("edit-apply").disabled = !report((await send("rules&check", $("edit-text").value)).json);
}

async function apply() {
	const done = await send("rules", $("edit-text").value, { "If-Match": version });
	if (done.isGood) version = done.version;
	$("edit-apply").disabled = true;
	report(done.json, done.isGood ? ["In force:"] : []);
}

/** Proposes the rule at `place` with or without shadow mode. */
async function toggle(place) {
	await load();
	$("edit-box").open = true;
	const proposed = JSON.parse($("edit-text").value);
	const rule = proposed.rules[place];
	if (rule.shadow) delete rule.shadow;
	else rule.shadow = true;
	$("edit-text").value = JSON.stringify(proposed, null, 2);
	await check();
	$("edit-box").scrollIntoView();
	$("edit-apply").focus();
}

/** Looks up a value, or resets it; by a rule of all resources, on that of the plots. */
async function look(event) {
	event.preventDefault();
	const isReset = event.submitter?.value === "reset";
	const rule = $("left-rule").value, own = state.rules.list.find((it) => it.id === rule).resource;
	const { resource, direction } = own === "*" ? state.focus : { resource: own };
	const { isGood, json } = await send(isReset ? "reset" : "left", JSON.stringify({ resource, direction, rule, value: $("left-value").value }));
	const told = isReset ? (json.reset ? "reset" : "nothing to reset") : (json.left ?? "any number") + " left";
	$("left").textContent = isGood ? told : json.error;
}

/** Gives `cell` its button, which has to be pressed twice if it stops calls. */
function button(cell, text, isHarmless, act) {
	let it = cell.querySelector("button");
	if (!it) {
		it = document.createElement("button");
		it.type = "button";
		it.addEventListener("click", () => {
			if (it.dataset.isSure || it.isHarmless) it.act();
			if (it.dataset.isSure) return delete it.dataset.isSure;
			if (!it.isHarmless) it.dataset.isSure = it.textContent = "Sure?";
		});
		it.addEventListener("blur", () => delete it.dataset.isSure);
		cell.append(" ", it);
	}
	Object.assign(it, { act, isHarmless });
	if (!it.dataset.isSure && it.textContent !== text) it.textContent = text;
}

document.addEventListener("state", ({ detail }) => {
	({ state, token, visible } = detail);
	$("edit").hidden = state.edits == null;
	if (state.edits == null) return;
	$("edit-note").textContent = state.edits;
	const keyed = state.rules.list.filter((it) => it.resets != null).map((it) => it.id);
	const known = [...$("left-rule").options].map((it) => it.value);
	if (known.join("\n") !== keyed.join("\n")) $("left-rule").replaceChildren(...keyed.map((id) => new Option(visible(id), id)));
	$("left-form").hidden = !keyed.length;
	state.breakers.list.forEach(({ resource, direction, rule, state: now }, place) => {
		const set = now === "closed" ? "open" : "close";
		const act = () => send("breaker", JSON.stringify({ resource, direction, rule, set }));
		button($("breaker-rows").children[place].children[2], set === "open" ? "Open" : "Close", set === "close", act);
	});
	state.rules.list.forEach(({ is_shadow: isShadow }, place) => {
		const text = isShadow ? "Enforce …" : "Only watch …";
		button($("rule-rows").children[place].children[3], text, true, () => toggle(place));
	});
});
on("left-form", "submit", look);
on("edit-load", "click", load);
on("edit-check", "click", check);
on("edit-apply", "click", apply);
on("edit-box", "toggle", () => $("edit-box").open && !version && load());
on("edit-text", "input", () => ($("edit-apply").disabled = true));
