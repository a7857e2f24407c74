# SPDX-License-Identifier: Apache-2.0
"""The page of `ddpctl web` in a real Chromium."""

import importlib.util
import os
import pathlib
import re

import pytest
from chromium import Browser, program
from conftest import DDPRUN, run, wait_for
from test_hangs import TELL
from test_web import DDPCTL, Page, a_run  # noqa: F401

pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium: deploy/setup.sh --test unpacks one")


def accessibility_finds(browser):
    """What axe-core finds in the page, one line each."""
    folder = importlib.util.find_spec("axe_core_python").submodule_search_locations[0]
    browser.value((pathlib.Path(folder) / "axe.min.js").read_text() + "; 0")
    return browser.value("axe.run().then(found => found.violations.map(one => `${one.impact} ${one.id}: ${one.nodes[0].html}`))")


def test_a_live_run(a_run):  # noqa: F811
    with Page(a_run[0]) as page, Browser() as browser:
        browser.open(page.url.geturl())
        browser.wait_for("S && $('phase').textContent === 'running'")
        assert browser.value("location.href") == f"{page.origin()}/"  # the token is gone from the address
        assert page.token not in browser.value("document.documentElement.outerHTML + document.cookie")
        browser.wait_for("$('legend').textContent === '2 running'")
        browser.wait_for("$('lines').textContent.includes('</script><b>hello from rank 1')")
        browser.wait_for("$('events').textContent.includes('round 1 begins')")
        browser.wait_for("document.querySelectorAll('#charts canvas').length === 5")  # loss, accuracy, rate, goodput, step
        step = browser.value("S.samples[S.samples.length - 1][3]")
        browser.wait_for(f"S.samples[S.samples.length - 1][3] > {step}")  # it goes on
        # Scrubbed to the first moment, and back.
        browser.press("Home")
        browser.wait_for("$('phase').textContent.startsWith('at ')")
        browser.press("End")
        browser.wait_for("$('phase').textContent === 'running'")
        browser.press("t")
        browser.wait_for("document.documentElement.classList.contains('dark')")
        browser.value("$('grid').focus()")
        browser.press("ArrowRight")
        browser.press("ArrowRight")
        browser.wait_for("$('chosen').textContent.startsWith('Rank 1 on ')")
        assert browser.value("$('orders').hidden") is True
        assert accessibility_finds(browser) == []
        page.process.kill()
        browser.wait_for("$('link').textContent.includes('no connection')")
        assert [one for one in browser.logged if "ERR_" not in one] == []
        asked = {re.sub(r"\?.*", "", one) for one in browser.asked}
        assert asked <= {f"{page.origin()}/{path}" for path in ("", "events", "favicon.ico")}


def test_orders_by_buttons(a_run):  # noqa: F811
    port, node = a_run
    with Page(port, "--web-control") as page, Browser() as browser:
        browser.open(page.url.geturl())
        browser.wait_for("S && !$('orders').hidden")
        browser.value("window.confirm = () => false; $('stop').click()")
        assert node.poll() is None
        browser.value("window.confirm = () => true; $('stop').click()")
        assert node.wait(60) == 143
        browser.wait_for("$('answer').textContent.includes('job')")
        browser.wait_for("$('why').textContent.includes('stopped')")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 1000)])
def test_a_saved_run_is_drawn_without_a_network(tmp_path, monkeypatch, width, height, dark):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run([DDPRUN, "--detach", "--nproc-per-node", 2, "sh", "-c", "echo bye; sleep 1; exit 3"])
    wait_for("its end", lambda: "exit code 3" in run([DDPCTL, "runs"]).stdout)
    assert run([DDPCTL, "web", "--save", tmp_path / "past.html"]).returncode == 0
    with Browser() as browser:
        browser.open(f"file://{tmp_path}/past.html", width, height, dark, phone=width < 500)
        browser.wait_for("$('phase').textContent === 'failed' && $('lines').textContent.includes('bye')")
        browser.wait_for("$('legend').textContent.startsWith('last seen: ')")
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value("getComputedStyle(document.body).backgroundColor") == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
        assert browser.logged == []
        assert browser.asked == [f"file://{tmp_path}/past.html"]
        assert accessibility_finds(browser) == []
        if folder := os.environ.get("DDPRUN_WEB_PICTURES"):
            browser.picture(f"{folder}/web-{width}-{'dark' if dark else 'light'}.png")


def test_curves_of_another_run_go_on_where_this_one_has_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "worker.py"
    steps = "import sys, time\nfor i in range(int(sys.argv[1])):\n    progress(STEP=i, LOSS=1 / (i + 1))\n    time.sleep(0.1)\n"
    script.write_text(TELL + steps)
    long, short = (run([DDPRUN, "--detach", script, steps]).stdout.split()[0] for steps in (40, 15))
    wait_for("both ends", lambda: run([DDPCTL, "runs"]).stdout.count("exit code 0") == 2)
    saved = run([DDPCTL, "web", short, "--save", tmp_path / "page.html", "--compare", long])
    assert saved.returncode == 0, saved.stderr
    with Browser() as browser:
        browser.open(f"file://{tmp_path}/page.html")
        browser.wait_for(f"document.querySelector('.other')?.textContent === '{long}'")
        assert browser.value("span()[1] > range()[1] && span()[1] - span()[0] === duration(S.others[0])") is True
        browser.value("loss = document.querySelector('canvas[data-index=\"6\"]'); 0")
        beyond = "loss.getContext('2d').getImageData(loss.width * 0.7, 0, loss.width * 0.2, loss.height)"
        assert browser.value(f"{beyond}.data.some(one => one > 0)") is True
        assert browser.logged == []
        assert accessibility_finds(browser) == []
