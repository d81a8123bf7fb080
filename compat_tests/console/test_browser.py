"""The console in Chromium: straight and through our proxy, with authentication (spec OP-06)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from compat_tests.console.chromium import DESKTOP, PHONE, Browser, open_browser
from compat_tests.missing import CHROMIUM, skipped_without
from compat_tests.secured import Secured, admin, start_secured
from geminga_runtime.auth.console_login import CREDENTIAL_COOKIE

HOSTILE = '"><img src=x onerror="window.hacked=1"><svg onload=window.hacked=1>'
PAYLOAD = f"{HOSTILE}<script>window.hacked=1</script>"
REST = "/admin/v2/persistent/public/default"
TOPICS = "/console/topics/persistent/public/default"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with two topics, and a proxy before it; both authenticate."""
    running = start_secured("geminga", tmp_path_factory.mktemp("console"))
    try:
        for topic in ("orders", "clicks", quote(HOSTILE, safe="")):
            subscription = quote(quote(HOSTILE if topic.startswith("%") else "billing", ""), "")
            rest(running, "PUT", f"{REST}/{topic}/subscription/{subscription}", "earliest")
            message = {"payload": PAYLOAD, "key": HOSTILE, "properties": {HOSTILE: HOSTILE}}
            path = f"/topics/persistent/public/default/{topic}?withoutSchema=true"
            rest(running, "POST", path, {"messages": [message] * 3})
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with skipped_without(CHROMIUM), open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """Without cookies. At the end no policy was violated, and no script has failed."""
    window.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    window.size(*DESKTOP)
    window.complaints()
    yield window
    # Answers that are errors are logged too: those are what the test wants.
    assert [each for each in window.complaints() if "Failed to load resource" not in each] == []


def rest(servers: Secured, method: str, path: str, body: object = None) -> object:
    return admin(servers.broker.web_url, servers.keys, method, path, body)


def backlog(servers: Secured, topic: str = "orders") -> int:
    found = rest(servers, "GET", f"{REST}/{topic}/stats")
    assert isinstance(found, dict)
    return int(found["subscriptions"]["billing"]["msgBacklog"])


def log_in(browser: Browser, servers: Secured, role: str = "admin") -> None:
    browser.one("#f-token").send_keys(servers.keys.token(role))
    browser.one("button.main").click()
    browser.wait(lambda: browser.path != "/console/login" and browser.one("footer"))


@pytest.mark.slow
def test_from_the_login_to_an_action(browser: Browser, servers: Secured) -> None:
    browser.open(f"{servers.broker.web_url}{TOPICS}/orders")
    assert browser.path == "/console/login"
    assert "billing" not in browser.driver.page_source
    browser.one("#f-token").send_keys("rubbish")
    browser.one("button.main").click()
    browser.wait(lambda: "doesn't accept" in browser.text)
    log_in(browser, servers)
    assert browser.path == f"{TOPICS}/orders"
    assert "No consumer is connected" in browser.text
    browser.wait(lambda: browser.every(".plot path[d*=M]"))
    assert browser.run("return document.cookie") == ""
    browser.follow("default")
    browser.run("document.activeElement.blur()")
    browser.driver.switch_to.active_element.send_keys("/")
    browser.driver.switch_to.active_element.send_keys("ORD\n")
    browser.wait(lambda: [each.text for each in browser.every("tbody a")] == ["orders"])
    browser.follow("orders")
    browser.follow("billing")
    browser.follow("Clear the backlog")
    assert backlog(servers) == 3
    browser.one("button.loses").click()
    browser.wait(lambda: "The backlog was cleared." in browser.text)
    assert backlog(servers) == 0
    browser.open(servers.broker.web_url)
    assert "Brokers" in browser.text
    browser.one("button.plain").click()
    browser.wait(lambda: browser.path == "/console/login")
    browser.open(f"{servers.broker.web_url}/console/tenants")
    assert browser.path == "/console/login"


@pytest.mark.slow
def test_names_and_payloads_do_nothing(browser: Browser, servers: Secured) -> None:
    browser.open(f"{servers.broker.web_url}/console/login")
    log_in(browser, servers)
    name = quote(HOSTILE, safe="")
    at = f"{TOPICS}/{name}"
    for path in (
        "/console/namespaces/public/default", at, f"{at}/messages", f"{at}/do/terminate",
        f"{at}/subscriptions/{name}", f"{at}/messages?subscription={name}",
        f"/console/tenants?q={name}", f"/console/login?next={name}", f"{at}/do/{name}",
    ):  # fmt: skip
        browser.open(servers.broker.web_url + path)
        assert browser.every("footer"), path
        assert browser.run("return window.hacked") is None, path
        assert browser.every("img[src=x], svg[onload], script:not([src])") == [], path
    browser.open(servers.broker.web_url + f"{at}/messages")
    assert browser.text.count(PAYLOAD) == 3


@pytest.mark.slow
def test_every_page_fits_on_a_phone(browser: Browser, servers: Secured) -> None:
    browser.size(*PHONE)
    browser.open(f"{servers.broker.web_url}/console/login")
    log_in(browser, servers)
    long = quote(HOSTILE, safe="")
    for path in (
        "/console", "/console/tenants", "/console/tenants/public", f"{TOPICS}/{long}/do/send",
        "/console/namespaces/public/default", f"{TOPICS}/{long}", f"{TOPICS}/{long}/messages",
        f"{TOPICS}/{long}/subscriptions/{long}", f"{TOPICS}/{long}/subscriptions/{long}/do/reset",
        "/console/login", f"{TOPICS}/no",
    ):  # fmt: skip
        browser.open(servers.broker.web_url + path)
        assert browser.run("return document.documentElement.scrollWidth") == PHONE[0], path


@pytest.fixture
def another_site(servers: Secured) -> Iterator[int]:
    """A page that posts a form to the console as soon as it is looked at."""
    url = f"{servers.broker.web_url}{TOPICS}/clicks/subscriptions/billing/do/clear"
    page = f"<form method=post action='{url}'><input name=form_token value={'0' * 32}></form>"
    page += "<script>document.forms[0].submit()</script>"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_arguments: object) -> None:
            return

    # In threads, as a browser opens connections ahead that it doesn't use.
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_another_sites_page_can_do_nothing(
    browser: Browser, servers: Secured, another_site: int
) -> None:
    browser.open(f"{servers.broker.web_url}/console/login")
    log_in(browser, servers)
    # Another port is another page but the same site, whose cookies the browser sends.
    browser.open(f"http://127.0.0.1:{another_site}/")
    browser.wait(lambda: "doesn't come from the console's own page" in browser.text)
    # Another host is another site: the cookie stays behind.
    browser.open(f"http://localhost:{another_site}/")
    browser.wait(lambda: browser.path == "/console/login")
    assert backlog(servers, "clicks") == 3


@pytest.mark.slow
def test_through_the_proxy_with_tls(browser: Browser, servers: Secured) -> None:
    browser.open(servers.proxy.web_url_tls)
    assert browser.path == "/console/login"
    log_in(browser, servers)
    kept = {each["name"]: each for each in browser.driver.get_cookies()}[CREDENTIAL_COOKIE]
    assert (kept["secure"], kept["httpOnly"], kept["sameSite"]) == (True, True, "Strict")
    assert "Brokers" in browser.text
    browser.open(f"{servers.proxy.web_url_tls}{TOPICS}/clicks/do/send")
    browser.one("#f-payload").send_keys("by the proxy")
    browser.one("button.main").click()
    browser.wait(lambda: "The message is stored." in browser.text)
    browser.follow("Look at messages")
    browser.wait(lambda: browser.every("pre"))
    assert browser.every("pre")[0].text == "by the proxy"


@pytest.mark.slow
def test_what_a_role_may_not_see(browser: Browser, servers: Secured, tmp_path: Path) -> None:
    browser.open(f"{servers.proxy.web_url}{TOPICS}/clicks")
    log_in(browser, servers, "mallory")
    assert browser.every("[role=alert]")
    assert "billing" not in browser.driver.page_source
