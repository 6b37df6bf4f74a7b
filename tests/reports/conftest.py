"""A real browser for what is to be seen in one."""

import os
import shutil

import pytest

DESK = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window. Where there is none, tests are skipped, in CI they fail."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        reason = "no Chromium here, so the page was not looked at; install it: apt-get install chromium"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def desk(browser):
    """The tab of a browser that tests share, since a new one takes longer than most of them."""
    context = browser.new_context(**DESK)
    yield context.new_page()
    context.close()


@pytest.fixture
def open_page(browser, desk, tmp_path):
    """Open this HTML as a file; at the end it must have had no errors, and have asked for nothing but itself.

    With options (`viewport`, `color_scheme`, …) it opens in a tab of its own.
    """
    contexts, heard, problems, file = [], [], [], tmp_path / "page.html"
    listeners = {
        "pageerror": lambda error: problems.append(f"error: {error}"),
        "console": lambda said: said.type in ("error", "warning") and problems.append(f"console: {said.text}"),
        "request": lambda asked: asked.url.startswith((file.as_uri(), "data:")) or problems.append(asked.url),
    }

    def opened(html, fragment="", **options):
        if options:
            contexts.append(browser.new_context(**DESK | options))
        page = contexts[-1].new_page() if options else desk
        for event, listener in listeners.items():
            page.on(event, listener)
            heard.append((page, event))
        file.write_text(html, encoding="utf-8")
        page.goto(file.as_uri() + fragment)
        return page

    yield opened
    for page, event in heard:
        page.remove_listener(event, listeners[event])
    for context in contexts:
        context.close()
    assert problems == []
