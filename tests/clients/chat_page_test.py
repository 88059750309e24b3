"""The chat page in headless Chromium: typing, streaming, stopping, reloading, by keyboard alone;
and what it shows when things go wrong. Screenshots go to build/log/."""

import time

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from spry_server import ROOT, SpryServer

SECONDS = 60


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    # root may not use Chromium's sandbox; without a real /dev/shm its shared memory is too small.
    flags = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    for flag in [*flags, "--force-device-scale-factor=1"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService("/usr/bin/chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def paced_server():
    """Words without end, 20 ms each."""
    flags = ["--device", "null", "--null-step-us", 20000]
    with SpryServer(*flags, log="clients-page") as running:
        yield running


class Page:
    def __init__(self, browser, server, width=1000, height=800):
        self.browser = browser
        browser.set_window_size(width, height)
        # The page itself would keep its dialogue when it is left.
        browser.get(f"{server.url}/version")
        browser.execute_script("sessionStorage.clear()")
        browser.get_log("browser")  # that one has no icon
        self.open(server)

    def open(self, server):
        self.browser.get(server.url)

    def find(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, role):
        return [e.get_attribute("textContent") for e in self.find(f"article.{role} .text")]

    def state(self):
        return self.find("#state")[0].text

    def until(self, condition):
        return WebDriverWait(self.browser, SECONDS, 0.02).until(lambda _: condition())

    def press(self, *keys):
        """To whatever has the focus."""
        actions = webdriver.ActionChains(self.browser)
        actions.send_keys(*keys).perform()

    def tab_to(self, id):
        for _ in range(20):
            if self.focused() == id:
                return
            self.press(Keys.TAB)
        pytest.fail(f"{id} can't be reached by keyboard; the focus is at {self.focused()!r}")

    def ask(self, text):
        self.press(text, Keys.ENTER)

    def is_busy(self):
        return self.find("#stop")[0].is_enabled()

    def focused(self):
        return self.browser.switch_to.active_element.get_attribute("id")

    def picture(self, name):
        self.browser.save_screenshot(str(ROOT / f"build/log/chat-page-{name}.png"))

    def run(self, script):
        return self.browser.execute_script(script)


def set_parameter(page, name, value):
    page.run(f"document.getElementById('{name}').value = '{value}'")


@pytest.fixture
def page(browser, paced_server):
    opened = Page(browser, paced_server)
    yield opened
    problems = [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert problems == []


def test_streams_by_keyboard(page, paced_server):
    assert page.focused() == "message"
    set_parameter(page, "max_tokens", 60)
    page.ask("Tell me a story")
    page.until(lambda: page.texts("assistant") and len(page.texts("assistant")[0]) > 20)
    assert page.is_busy()
    begun = page.texts("assistant")[0]
    page.until(lambda: not page.is_busy())
    whole = page.texts("assistant")[0]
    assert whole.startswith(begun) and len(whole) > len(begun)
    assert page.texts("user") == ["Tell me a story"]
    assert page.state().startswith("60 tokens, ") and "tokens/s" in page.state()
    assert page.focused() == "message"


def test_lines_and_several_turns(page):
    set_parameter(page, "max_tokens", 3)
    newline = webdriver.ActionChains(page.browser).send_keys("one").key_down(Keys.SHIFT)
    newline.send_keys(Keys.ENTER).key_up(Keys.SHIFT).send_keys("two", Keys.ENTER).perform()
    page.until(lambda: len(page.texts("assistant")) == 1 and not page.is_busy())
    page.ask("<b>three</b> & 4")
    page.until(lambda: len(page.texts("assistant")) == 2 and not page.is_busy())
    assert page.texts("user") == ["one\ntwo", "<b>three</b> & 4"]
    page.ask("   ")
    assert len(page.texts("user")) == 2


@pytest.mark.parametrize("how", ["escape", "button"])
def test_stop(page, paced_server, how):
    page.ask("Go on for ever")
    page.until(lambda: page.texts("assistant") and len(page.texts("assistant")[0]) > 20)
    if how == "escape":
        page.press(Keys.ESCAPE)
    else:
        page.tab_to("stop")
        page.press(Keys.ENTER)
    page.until(lambda: not page.is_busy())
    assert paced_server.await_idle(seconds=1)
    assert "ended by you" in page.state()
    kept = page.texts("assistant")[0]
    time.sleep(0.2)
    assert page.texts("assistant") == [kept] and page.focused() == "message"


def test_reload_keeps_the_dialogue(page, paced_server):
    set_parameter(page, "max_tokens", 5)
    page.ask("Remember this")
    page.until(lambda: page.texts("assistant") and not page.is_busy())
    answer = page.texts("assistant")
    page.open(paced_server)
    assert (page.texts("user"), page.texts("assistant")) == (["Remember this"], answer)
    assert page.find("#max_tokens")[0].get_attribute("value") == "5"
    page.ask("More")
    page.until(lambda: len(page.texts("assistant")) == 2 and not page.is_busy())
    page.open(paced_server)
    page.tab_to("clear")
    page.press(Keys.ENTER)
    page.open(paced_server)
    assert page.texts("user") == []


def test_reload_amid_an_answer(page, paced_server):
    page.ask("Go on for ever")
    page.until(lambda: page.texts("assistant") and len(page.texts("assistant")[0]) > 20)
    page.open(paced_server)
    assert paced_server.await_idle(seconds=1)
    assert page.texts("user") == ["Go on for ever"] and not page.is_busy()
    (answer,) = page.texts("assistant")
    assert len(answer) > 20
    set_parameter(page, "max_tokens", 2)
    page.ask("And now?")
    page.until(lambda: len(page.texts("assistant")) == 2 and not page.is_busy())


def test_parameters_by_keyboard(page):
    page.tab_to("parameters-title")
    page.press(Keys.ENTER)
    page.tab_to("max_tokens")
    page.press("4")
    page.tab_to("message")
    page.ask("hi")
    page.until(lambda: page.texts("assistant") and not page.is_busy())
    assert page.state().startswith("4 tokens, ") and "ended by length" in page.state()


def test_errors(browser, paced_server):
    page = Page(browser, paced_server)
    set_parameter(page, "temperature", -2)
    page.ask("hi")
    page.until(lambda: page.texts("error"))
    assert "temperature" in page.texts("error")[0]
    assert page.find("#message")[0].get_attribute("value") == "hi"
    with SpryServer("--api-key", "k", "--device", "null", log="clients-page-key") as guarded:
        page = Page(browser, guarded)
        page.ask("hi")
        page.until(lambda: page.texts("error"))
        assert "API key" in page.texts("error")[0] and page.texts("user") == []
        set_parameter(page, "key", "k")
        set_parameter(page, "max_tokens", 3)
        page.press(Keys.ENTER)
        page.until(lambda: page.texts("assistant") and not page.is_busy())
        guarded.process.kill()
        guarded.process.wait()
        page.ask("anyone?")
        page.until(lambda: page.texts("error"))
        assert "the server does not answer" in page.texts("error")[-1]
        assert page.find("#message")[0].get_attribute("value") == "anyone?"
        page.picture("error")
        guarded.stop = lambda: None
    browser.get_log("browser")


def test_server_that_dies_amid_an_answer(browser):
    flags = ["--device", "null", "--null-step-us", 20000]
    with SpryServer(*flags, log="clients-page-dies") as server:
        page = Page(browser, server)
        page.ask("hi")
        page.until(lambda: page.texts("assistant") and len(page.texts("assistant")[0]) > 20)
        server.process.kill()
        page.until(lambda: page.texts("error") and not page.is_busy())
        assert len(page.texts("assistant")[0]) > 20
        server.stop = lambda: None
    browser.get_log("browser")


@pytest.mark.parametrize("width, scheme", [(1000, "light"), (1000, "dark"), (360, "light")])
def test_looks(browser, paced_server, server, width, scheme):
    """For people to look at; nothing may stick out of the window."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page = Page(browser, server)
    set_parameter(page, "temperature", 0)
    set_parameter(page, "max_tokens", 120)
    page.ask("Write a Python function that adds two numbers.")
    page.until(lambda: page.texts("assistant") and not page.is_busy())
    page.ask("W" * 300)
    page.until(lambda: len(page.texts("assistant")) == 2)
    page.picture(f"{scheme}-{width}-streaming")
    page.until(lambda: not page.is_busy())
    page.picture(f"{scheme}-{width}")
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.run(wide) == 0
    below = "return document.documentElement.scrollHeight - window.innerHeight"
    assert page.run(below) <= 0
    page.run("document.querySelector('details').open = true")
    page.picture(f"{scheme}-{width}-parameters")
    assert page.run(wide) == 0 and page.run(below) <= 0
    assert page.find("#message")[0].is_displayed() and page.find("#send")[0].is_displayed()
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
