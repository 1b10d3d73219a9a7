"""The live page as a person meets it: in a browser, with keys and clicks, beside a hostile page.

    python3 ci/browser/check.py target/debug/examples/observe target/browser
"""

import http.client
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

from chromium import Chromium

TOKEN = "correct-horse-battery"
MARKER = "m4rk3r"

# The colours of all texts that can be seen against what is behind them, WCAG 2.2, 1.4.3.
CONTRAST = """
(() => {
  const channels = (color) => color.match(/[0-9.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = channels(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walker.nextNode());) {
    const node = text.parentElement, box = node.getBoundingClientRect();
    if (!text.data.trim() || box.width < 2 || !node.checkVisibility()) continue;
    const [a, b] = [channels(getComputedStyle(node).color), behind(node)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(text.data.trim() + " " + ratio.toFixed(2));
  }
  return found;
})()
"""

# All that change the direction, by the Unicode bidirectional algorithm.
TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

NAMES = "[...document.querySelectorAll('#rows tr')].map((row) => row.querySelector('button').textContent)"
STATUS = "document.getElementById('status').dataset.state"
ASKED = "performance.getEntriesByType('resource').filter((it) => it.name.includes('?state')).length"


def text_of(name):
    return f"document.getElementById('{name}').textContent"


def passed(what, detail=""):
    print(f"  ok: {what}{f' ({detail})' if detail else ''}", flush=True)


def check(what, is_true, detail=""):
    if not is_true:
        raise AssertionError(f"{what}: {detail}")
    passed(what, detail if len(str(detail)) < 20 else "")


class Shop:
    """The example, without customers."""

    running = []

    def __init__(self, program, port=0, **settings):
        environment = {**os.environ, "LOAD": "none", "PORT": str(port), **settings}
        self.process = subprocess.Popen([program], env=environment, stdout=subprocess.PIPE, text=True)
        self.running.append(self)
        self.url = self.process.stdout.readline().split()[-1]
        self.port = urlsplit(self.url).port

    def get(self, *requests, **fields):
        """Sends requests one after the other, and returns the last status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        for path in requests:
            connection.request("GET", path, headers={"x-user": MARKER, **fields})
            answer = connection.getresponse()
            answer.read()
        connection.close()
        return answer.status

    def stop(self):
        self.process.kill()
        self.process.wait()


class Hostile:
    """A page on another origin, which frames the page and reads from it."""

    def __init__(self, target):
        page = f"<!doctype html><title>evil</title><iframe src='{target}'></iframe>".encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


def wait_live(tab, seconds=12):
    return tab.until(f"{STATUS} === 'live' && !document.getElementById('all').hidden", seconds)


def content(browser, shop, pictures):
    """What it shows, and what a viewer can do."""
    tab = browser.tab(shop.url)
    wait_live(tab)
    check("the title is that of the page", tab.run("document.title") == "the shop – tower-sentinel")
    told = tab.run(text_of("findings"))
    check("findings stand on top", "1 finding" in told and "no call" in told, told)

    tab.run("document.querySelector('#findings-list button').click()")
    tab.until("document.getElementById('findings').textContent.includes('1 put aside')")
    tab.go("about:blank")
    tab.go(shop.url)
    wait_live(tab)
    told = tab.run(text_of("findings"))
    check("a finding that was put aside stays so", "1 put aside" in told and "no call" not in told, told)
    tab.run("document.querySelector('#findings-list button').click()")
    tab.until("document.getElementById('findings').textContent.includes('no call')")
    passed("findings that were put aside are shown again")

    shop.get(*["/orders/1"] * 30, *["/search"] * 40)
    shop.get(*["/pay"] * 12, **{"x-fail": "1"})
    took = tab.until("!!document.querySelector('#breaker-rows .state.open')", 5)
    check("an open breaker is seen within two seconds", took <= 2, f"{took:.2f} s")
    tab.until("!!document.querySelector('#rows .state.open')")
    passed("its resource says so as well")
    tab.until("[...document.querySelectorAll('#rule-rows tr')].some((row) => "
              "row.children[0].textContent === 'search-per-user' && Number(row.children[4].textContent) > 0)")
    passed("a rule shows what it has refused")

    tab.run("(() => { const it = document.getElementById('sort'); it.value = 'name';"
            "it.dispatchEvent(new Event('change')); })()")
    tab.until(f"JSON.stringify({NAMES}) === JSON.stringify({NAMES}.sort())")
    tab.run("document.querySelector('th[data-sort=refused] button').click()")
    tab.until(f"document.querySelector('th[data-sort=refused]').getAttribute('aria-sort') === 'descending'"
              f" && {NAMES}[0] !== '/orders/{{id}}'")
    passed("rows are sorted by the list and by the heads of columns")

    tab.run("document.getElementById('filter').focus()")
    tab.type("SEAR")
    tab.until(f"JSON.stringify({NAMES}) === '[\"/search\"]'")
    check("the filter is kept in the address", "q=SEAR" in tab.run("location.hash"))
    tab.go("about:blank")
    tab.go(shop.url + "#q=sear&sort=name")
    tab.until(f"JSON.stringify({NAMES}) === '[\"/search\"]'")
    passed("a link with a filter opens with it")
    tab.run("(() => { const it = document.getElementById('filter'); it.value = '';"
            "it.dispatchEvent(new Event('input')); })()")
    tab.until(f"{NAMES}.length >= 3")

    tab.run("[...document.querySelectorAll('#rows button')].find((it) => it.textContent === '/search').click()")
    tab.until("document.getElementById('focus-limit').textContent === 'limit 25/s'")
    check("a click on a name brings its minute", tab.run("document.getElementById('focus').value") == "inbound /search")
    label = tab.run("document.getElementById('plot-calls').getAttribute('aria-label')")
    check("a plot is told in words", "at most" in label and "refused" in label, label)
    shop.get(*["/search"] * 10)
    sparks = "[...document.querySelectorAll('.spark')].every((it) => it.getAttribute('aria-label'))"
    check("so are the small ones", tab.run(sparks))

    before = tab.run("document.querySelector('#rows button').focus() || document.activeElement.textContent")
    time.sleep(2.5)
    check("the place of the keyboard is kept", tab.run("document.activeElement.textContent") == before)

    tab.run("document.getElementById('pause').click()")
    time.sleep(0.3)
    asked = tab.run(ASKED)
    time.sleep(2.5)
    check("a pause asks nothing", tab.run(ASKED) == asked)
    check("and says so", tab.run(text_of("status")) == "paused")
    tab.run("document.getElementById('pause').click()")
    wait_live(tab)

    hidden = "Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }});" \
        "document.dispatchEvent(new Event('visibilitychange'))"
    tab.run(hidden.format("true"))
    time.sleep(0.5)
    asked = tab.run(ASKED)
    time.sleep(2.5)
    check("a hidden tab asks nothing", tab.run(ASKED) == asked)
    tab.run(hidden.format("false"))
    tab.until(f"{ASKED} > {asked}", 2)
    passed("and goes on when it is seen")

    check("no key of a caller is on the page", MARKER not in tab.run("document.documentElement.outerHTML"))
    check("the browser had nothing to complain about", not browser.told, browser.told)
    tab.close()


def keyboard(browser, shop):
    tab = browser.tab(shop.url)
    wait_live(tab)
    reached = []
    for _ in range(24):
        tab.press("Tab")
        name = tab.run("document.activeElement.id || document.activeElement.textContent")
        reached.append(name)
        if name == "pause":
            tab.press(" ", "Space", " ")
            check("the space bar pauses", tab.run(text_of("status")) == "paused")
            tab.press(" ", "Space", " ")
        if name == "/search":
            outline = tab.run("getComputedStyle(document.activeElement).outlineStyle")
            check("the place of the keyboard can be seen", outline == "solid", outline)
            tab.press("Enter", "Enter", "\r")
            tab.until("document.getElementById('focus').value === 'inbound /search'")
            passed("Enter brings the minute of a row")
    wanted = ["pause", "theme", "focus", "filter", "sort", "pass/s", "/search", "/pay"]
    check("the keyboard reaches everything", all(it in reached for it in wanted), reached)
    tab.close()


def looks(browser, shop, pictures):
    """Pictures, contrast, and no way to scroll sideways."""
    forms = [("light", 1280, 1100, False), ("dark", 1280, 1100, True), ("phone", 390, 844, False)]
    for name, width, height, is_dark in forms:
        tab = browser.tab(shop.url, width, height, is_dark)
        wait_live(tab)
        shop.get(*["/orders/1"] * 20, *["/search"] * 12)
        time.sleep(2.2)
        low = tab.run(CONTRAST)
        check(f"every text of {name} has a contrast of 4.5", not low, low)
        wide = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        check(f"{name} needs no scrolling sideways", wide <= 0, wide)
        tab.picture(pictures / f"{name}.png", whole=True)
        tab.close()
    tab = browser.tab(shop.url)
    wait_live(tab)
    background = "getComputedStyle(document.body).backgroundColor"
    light = tab.run(background)
    tab.run("document.getElementById('theme').click(), document.getElementById('theme').click()")
    check("the theme can be set by hand", tab.run(background) != light, light)
    check("to one that is readable", not tab.run(CONTRAST))
    tab.run("document.getElementById('theme').click()")
    tab.close()


def security(browser, shop):
    before = len(browser.told)
    hostile = Hostile(shop.url)
    tab = browser.tab(hostile.url)
    time.sleep(1)
    told = " ".join(browser.told[before:])
    check("a frame is refused", "frame-ancestors" in told or "X-Frame-Options" in told, told)
    read = f"fetch('{shop.url}?state').then((it) => it.text()).catch(() => 'refused')"
    check("another site cannot read the state", tab.run(read) == "refused")
    tab.close()

    tab = browser.tab(shop.url)
    wait_live(tab)
    before = len(browser.told)
    tab.run("document.head.append(Object.assign(document.createElement('script'), "
            "{ textContent: 'window.reached = true' }))")
    tab.run("document.body.setAttribute('onclick', 'window.reached = true'), document.body.click()")
    check("an inline script is refused", not tab.run("window.reached"))
    told = " ".join(browser.told[before:])
    check("by the policy", "Content Security Policy" in told, told)
    tab.close()
    browser.told.clear()

    connection = http.client.HTTPConnection("127.0.0.1", shop.port)
    for fields, why in [
        ({"host": "evil.example"}, "a foreign name"),
        ({"host": f"localhost:{shop.port}", "x-forwarded-for": "192.0.2.7"}, "a forwarded request"),
    ]:
        connection.request("GET", "/sentinel?state", headers=fields)
        answer = connection.getresponse()
        answer.read()
        check(f"{why} is refused", answer.status == 403, answer.status)


def restart(browser, program):
    shop = Shop(program)
    tab = browser.tab(shop.url)
    wait_live(tab)
    shop.stop()
    tab.until(f"{STATUS} === 'lost'", 5)
    passed("a server that is gone is told", tab.run(text_of("status")))
    shop = Shop(program, shop.port)
    passed("a restarted one is found again", f"{wait_live(tab):.1f} s")
    tab.close()
    shop.stop()
    browser.told.clear()


def token(browser, program, pictures):
    shop = Shop(program, TOKEN=TOKEN)
    tab = browser.tab(shop.url)
    tab.until("!document.getElementById('ask').hidden")
    check("the field has the keyboard", tab.run("document.activeElement.id") == "token")
    tab.type("not-the-token-at-all")
    tab.press("Enter", "Enter", "\r")
    tab.until(f"{text_of('token-why')} === 'That is not the token.'")
    passed("a wrong token is told")
    tab.type(TOKEN)
    tab.press("Enter", "Enter", "\r")
    wait_live(tab)
    tab.go(shop.url)
    wait_live(tab)
    passed("the right one opens the page, and is kept in its tab")
    check("and nowhere else", tab.run("document.cookie + JSON.stringify(localStorage)").find(TOKEN) < 0)
    other = browser.tab(shop.url)
    other.until("!document.getElementById('ask').hidden")
    passed("another tab is asked again")
    other.close()
    edits(browser, shop, tab, pictures)
    tab.close()
    shop.stop()
    browser.told.clear()


def edits(browser, shop, tab, pictures):
    """Breakers and rules, changed on the page."""
    shop.get("/pay")
    breaker = "document.querySelector('#breaker-rows button')"
    tab.until(f"!!{breaker} && {breaker}.textContent === 'Open'")
    tab.run(f"{breaker}.click()")
    check("a breaker does not open by one click", tab.run(f"{breaker}.textContent") == "Sure?")
    check("and calls still pass", shop.get("/pay") == 200)
    tab.run(f"{breaker}.click()")
    tab.until("!!document.querySelector('#breaker-rows .state.open')")
    check("but by two", shop.get("/pay") == 503)
    tab.until(f"{breaker}.textContent === 'Close'")
    tab.run(f"{breaker}.click()")
    tab.until("!!document.querySelector('#breaker-rows .state.closed')")
    check("it is handed back", shop.get("/pay") == 200)

    shop.get("/search")
    tab.until("!document.getElementById('left-form').hidden && document.getElementById('left-rule').value !== ''")
    tab.run("document.getElementById('left-value').focus()")
    tab.type("192.0.2.99")
    tab.run("document.querySelector('#left-form button').click()")
    tab.until(f"{text_of('left')} === '5 left'")
    passed("a caller is looked up", tab.run(text_of("left")))

    told = text_of("edit-told")
    tab.run("document.querySelector('#rule-rows button').click()")
    tab.until(f"{told}.includes('shadow = true') && !document.getElementById('edit-apply').disabled")
    passed("a switch proposes shadow mode and says what it changes", tab.run(told))
    tab.picture(pictures / "edits.png", whole=True)
    check("every text of it has a contrast of 4.5", not tab.run(CONTRAST), tab.run(CONTRAST))
    tab.run("document.getElementById('edit-apply').click()")
    tab.until("document.querySelector('#rule-rows .state.shadow') !== null &&"
              "document.querySelector('#rule-rows tr .state.shadow').closest('tr').children[0].textContent === 'orders'")
    passed("it is in force when it is applied")
    tab.run("(() => { const it = document.getElementById('edit-text'); it.value = it.value.replace('60', '-60');"
            "it.dispatchEvent(new Event('input')); })()")
    check("what was not checked cannot be applied", tab.run("document.getElementById('edit-apply').disabled"))
    tab.run("document.getElementById('edit-check').click()")
    tab.until(f"{told}.includes('must be between 0 and')")
    passed("a mistake is told", tab.run(told))
    turned(shop, tab)


def turned(shop, tab):
    """A rule with characters that turn text around, in its name and its resource."""
    field = {"host": f"localhost:{shop.port}", "authorization": f"Bearer {TOKEN}"}
    connection = http.client.HTTPConnection("127.0.0.1", shop.port)
    connection.request("GET", "/sentinel?rules", headers=field)
    answer = connection.getresponse()
    field |= {"if-match": answer.getheader("etag"), "content-type": "application/json"}
    document = json.loads(answer.read())
    name = f"/a{TURNING}b"
    document["rules"].append({"kind": "flow", "id": name, "resource": name, "threshold": 5})
    connection.request("POST", "/sentinel?rules", json.dumps(document), field)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    check("a rule may have any name", answer.status == 200, text)
    shown = "/a" + "".join(f"\\u{{{ord(c):x}}}" for c in TURNING) + "b"
    cells = "[...document.querySelectorAll('#rule-rows tr')].map((row) => [...row.children].map((it) => it.textContent))"
    tab.until(f"{cells}.some((cells) => cells.filter((it) => it === {json.dumps(shown)}).length === 2)")
    left = tab.run(f"[...document.body.innerText].filter((c) => {json.dumps(TURNING)}.includes(c)).length")
    check("characters that turn text around are shown as codes", left == 0, left)


def crowd(browser, program):
    shop = Shop(program, ALL="1")
    shop.get(*[f"/made-up/{n}" for n in range(16_384)])
    tab = browser.tab(shop.url)
    wait_live(tab, 30)
    tab.until(f"{text_of('shown')}.includes(' of 16')", 10)
    tab.run("document.getElementById('filter').focus()")
    tab.type("up/1638")
    took = tab.until(f"{NAMES}.length > 0 && {NAMES}.every((it) => it.includes('up/1638'))", 5)
    passed("16 384 resources can be searched", f"{took:.2f} s")
    tab.run("(() => { const it = document.getElementById('filter'); it.value = '';"
            "it.dispatchEvent(new Event('input')); })()")
    tab.until(f"{NAMES}.length === 50")
    for _ in range(3):
        tab.run("document.getElementById('more').click()")
        time.sleep(0.3)
    tab.until(f"{NAMES}.length === 500", 10)
    wait_live(tab)
    begin = time.monotonic()
    tab.run("1")
    took = time.monotonic() - begin
    check("500 rows leave the page alive", took < 0.5, took)
    tab.close()
    shop.stop()


def main(program, pictures):
    pictures = pathlib.Path(pictures)
    pictures.mkdir(parents=True, exist_ok=True)
    browser, shop = Chromium(), Shop(program)
    try:
        content(browser, shop, pictures)
        keyboard(browser, shop)
        looks(browser, shop, pictures)
        security(browser, shop)
        restart(browser, program)
        token(browser, program, pictures)
        crowd(browser, program)
        check("the browser had nothing to complain about", not browser.told, browser.told)
    finally:
        browser.close()
        for shop in Shop.running:
            shop.stop()
    print(f"the live page is as it must be; look at it in {pictures}")


if __name__ == "__main__":
    main(*sys.argv[1:])
