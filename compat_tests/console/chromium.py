"""Debian's Chromium without a screen, driven by selenium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from selenium import webdriver
from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from compat_tests.apache.jars import PeerMissing

T = TypeVar("T")
_OPTIONS = (
    "--headless=new",
    # Tests run as root in containers, where the sandbox can't be made.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--ignore-certificate-errors",
)
CHANGING = NoSuchElementException, StaleElementReferenceException
GONE = "does not belong to the document"
"""What an element's node is said to do while another page comes."""
POLL_S = 0.05
DESKTOP = 1280, 900
PHONE = 390, 844


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Returns when the page is there."""
        self.driver.get(url)

    @property
    def path(self) -> str:
        """Of the page, without its query."""
        return "/" + self.driver.current_url.split("/", 3)[3].partition("?")[0]

    @property
    def text(self) -> str:
        """What the page shows."""
        return self.driver.find_element(By.TAG_NAME, "body").text

    def one(self, selector: str) -> WebElement:
        """The element of a CSS selector, waited for."""
        return self.wait(lambda: self.driver.find_element(By.CSS_SELECTOR, selector))

    def every(self, selector: str) -> list[WebElement]:
        """All of a CSS selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def follow(self, text: str) -> None:
        """Click a link, once it is there: the page before may still be going."""
        self.wait(lambda: self.driver.find_element(By.LINK_TEXT, text)).click()

    def wait(self, found: Callable[[], T], timeout_s: float = 20) -> T:
        """What the call answers once that is neither false nor an error of a page that changes.
        Raises TimeoutException.
        """

        def ask(_driver: object) -> T:
            try:
                return found()
            except WebDriverException as error:
                if GONE in str(error):  # chromedriver has no class for it
                    raise StaleElementReferenceException from error
                raise

        return WebDriverWait(self.driver, timeout_s, POLL_S, CHANGING).until(ask, "not there")

    def run(self, script: str) -> object:
        """The value of a script in the page."""
        return self.driver.execute_script(script)

    def size(self, width: int, height: int) -> None:
        """The window; a narrow one is a phone's."""
        given = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", given)

    def complaints(self) -> list[str]:
        """What the browser has logged since: violations of the policy, errors of scripts."""
        return [str(each["message"]) for each in self.driver.get_log("browser")]


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own. Raises PeerMissing."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise PeerMissing("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in (*_OPTIONS, f"--user-data-dir={folder}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(driver))
    try:
        browser = Browser(running)
        browser.size(*DESKTOP)
        yield browser
    finally:
        running.quit()
