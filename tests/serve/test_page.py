"""The page of the service, in headless Chromium: what it sends, shows and says."""

import contextlib
import dataclasses
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
import zlib

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: the extra serve")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: the extra serve")
pytest.importorskip("prometheus_client", reason="prometheus-client is not installed: extra serve")

import uvicorn  # noqa: E402
from rankers import cascade_ranking  # noqa: E402

from wqa.data import Document, write_documents  # noqa: E402
from wqa.inference import Capabilities, Ranker  # noqa: E402
from wqa.retrieval import build_index  # noqa: E402
from wqa.serve import ServeConfig  # noqa: E402
from wqa.serve.app import FOLDER, build_app  # noqa: E402
from wqa.serve.service import Service  # noqa: E402
from wqa.systems.cosinet.baselines import WordOverlap  # noqa: E402
from wqa.systems.load import load_ranker  # noqa: E402

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
KEY = "a key"
SLOW = "slow ?"

#: Scores of texts at three exits. At drop ratio 0.25 the first exit drops e, the second d; nothing
#: dropped, e would be the first.
SCORES = {
    "text a": (5, 5, 1),
    "text b": (4, 4, 3),
    "text c": (3, 3, 2),
    "text d": (2, 1, 0),
    "text e": (1, 2, 9),
}
TEXTS = sorted(SCORES)


class ThreeExits(Ranker):
    """A cascade of three exits whose scores are looked up. The question `SLOW` waits for a gate."""

    threshold = None  # as of a run that is not calibrated

    def __init__(self):
        self.gate = threading.Event()

    @property
    def capabilities(self):
        return Capabilities("three_exits", stages=3, exits=(2, 4, 6), num_layers=6)

    def rank_all(self, questions):
        for question in questions:
            if question.question == SLOW:
                assert self.gate.wait(30)
            yield self._ranking(question.texts)

    def _ranking(self, texts):
        known = np.array([SCORES.get(text, scores_of(text)) for text in texts], dtype=float).T
        truncated = np.array([text == "text c" for text in texts])
        more = {"truncated": truncated, "threshold": self.threshold}
        return cascade_ranking(known, self.drops, (2, 4, 6), **more)


def scores_of(text):
    return [zlib.crc32(f"{stage} {text}".encode()) / 2**31 - 1 for stage in range(3)]


#: Documents whose sentences the page asks for.
DOCUMENTS = [
    Document("one", "Text a came first . Text b came <b>next</b> . Text c came last .", "Texts"),
    Document("two", "Nothing is here . Text e stands alone ."),
    *(Document(f"E{number}", f"Snow {number} lies on hills .") for number in range(6)),
]


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collection")
    write_documents(folder / "documents.jsonl", DOCUMENTS)
    build_index(folder / "documents.jsonl", folder / "index", sentences=True)
    return str(folder / "index")


@contextlib.contextmanager
def served(ranker, others=None, **settings):
    """Address of a service in a thread, of a ranker and others by name."""
    rankers = {"tested": ranker, **(others or {})}
    app = build_app(Service(rankers, lambda ranker: ranker, ServeConfig(**settings)))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def ranker():
    ranker = ThreeExits()
    ranker.set_drops(0.25)
    return ranker


@pytest.fixture(scope="module")
def server(ranker):
    with served(ranker, max_candidates=100) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    library = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on the path")
    with library.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open the page of a server; `page.urls` collects what it requests.

    At the end no script has failed, and no request has left the host.
    """
    contexts = []

    def open_page(address, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.urls, page.failures = [], []
        page.on("request", lambda request: page.urls.append(request.url))
        page.on("pageerror", lambda error: page.failures.append(str(error)))
        page.on("console", lambda message: note(message, page.failures))
        page.goto(f"{address}/", wait_until="networkidle")
        assert all(url.startswith(f"{address}/") for url in page.urls)
        page.address = address
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert all(url.startswith(f"{page.address}/") for url in page.urls)
            assert not page.failures
        context.close()


def note(message, failures):
    """Keep a message of the console, but for those of refusals that a test asks for."""
    if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
        failures.append(message.text)


def ask(page, texts=TEXTS, question="which ?"):
    """Fill in the form, rank by keyboard, and wait for the ranking."""
    page.fill("#question", question)
    page.fill("#candidates", "\n".join(texts))
    page.press("#candidates", "Control+Enter")
    settle(page)


def settle(page):
    page.wait_for_selector("#ranking:not([hidden])")
    page.wait_for_selector("#results:not([aria-busy])")


def until(page, script):
    """Wait until a script is true; Playwright's way evaluates a string, which the page forbids."""
    end = time.monotonic() + 20
    while not page.evaluate(script):
        assert time.monotonic() < end, script
        page.wait_for_timeout(20)


def columns(page):
    """Heading and candidates of each column, in their order."""
    script = """sections => sections.map(section => [
        section.querySelector("h4").textContent,
        [...section.querySelectorAll("li .text")].map(text => text.textContent)])"""
    return [tuple(column) for column in page.eval_on_selector_all(".exit", script)]


def table(page):
    """Rows of the table, with the head, as texts."""
    script = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    return page.eval_on_selector_all("#ranking tr", script)


# The files


def get(url, method="GET"):
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20) as answer:
        return answer.headers, answer.read()


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_files_are_sent_with_their_headers(server, name):
    path = "/" if name == "index.html" else f"/page/{name}"
    headers, body = get(server + path)
    assert body == (FOLDER / name).read_bytes()
    kinds = {"html": "html", "css": "css", "js": "javascript", "svg": "svg"}
    assert kinds[name.rpartition(".")[2]] in headers["content-type"]
    assert headers["x-content-type-options"] == "nosniff"
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert get(server + path, "HEAD")[1] == b""


@pytest.mark.parametrize("path", ["/page/", "/page/../app.py", "/page/%2e%2e/app.py"])
def test_no_other_file_is_sent(server, path):
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(server + path)
    assert caught.value.code == 404


# Ranking


def test_the_example_is_ranked_by_the_button(visit, server):
    page = visit(server)
    assert "three_exits" in page.inner_text("#ranker") and not page.is_visible("#key")
    assert page.input_value("#question")
    assert "10 candidates" in page.inner_text("#count")
    page.click("#rank")
    settle(page)
    assert len(table(page)) == 11


def test_candidates_stand_where_they_fell(visit, server):
    page = visit(server)
    ask(page)
    assert columns(page) == [
        ("Layer 2", ["text e"]),
        ("Layer 4", ["text d"]),
        ("Layer 6", ["text b", "text c", "text a"]),
    ]
    heads = page.locator(".exit header").all_inner_texts()
    facts = ["5 scored, 1 dropped", "4 scored, 1 dropped", "3 scored"]
    # (2 * 5), (2 * 5 + 2 * 4) and (2 * 5 + 2 * 4 + 2 * 3) of 6 * 5 layers.
    costs = ["33", "60", "80"]
    for head, fact, cost in zip(heads, facts, costs):
        assert fact in head and f"cost so far {cost}\xa0%" in head
    script = "bars => bars.map(bar => bar.clientWidth / bar.parentElement.clientWidth)"
    bars = page.eval_on_selector_all(".exit .meter i", script)
    assert np.allclose(bars, [0.333, 0.6, 0.8], atol=0.01)  # the costs that are written above them
    assert "text b" in page.inner_text(".best")
    status = page.inner_text("#status")
    assert "5 candidates ranked in" in status and "2 dropped on the way" in status
    assert "80\xa0% of the full encoder's work" in status
    cards = page.locator(".exit li").all_inner_texts()
    assert [card.split() for card in cards] == [
        ["rank", "5", "text", "e", "scores", "1.00", "dropped"],
        ["rank", "4", "text", "d", "scores", "2.00", "→", "1.00", "dropped"],
        ["rank", "1", "text", "b", "scores", "4.00", "→", "4.00", "→", "3.00"],
        ["rank", "2", "text", "c", "scores", "3.00", "→", "3.00", "→", "2.00", "truncated"],
        ["rank", "3", "text", "a", "scores", "5.00", "→", "5.00", "→", "1.00"],
    ]
    rows = table(page)
    assert rows[0] == ["Rank", "Candidate", "Layer 2", "Layer 4", "Layer 6", "Relevance"]
    assert rows[4][:3] == ["4", "text d", "2.00"] and rows[4][3].startswith("1.00")
    assert rows[4][3].split() == ["1.00", "\u2715", ",", "dropped", "here"]
    assert "not scored" in rows[4][4]
    assert "Scores are log-odds" in page.inner_text("#results")
    relevance = [float(row[5]) for row in rows[1:]]
    assert relevance == sorted(relevance, reverse=True) and relevance[0] == 0.953  # of log-odds 3


def test_the_slider_ranks_again_once_for_many_moves(visit, server):
    page = visit(server)
    assert page.input_value("#ratio") == "0.25" and page.inner_text("#ratio-value") == "0.25"
    ask(page)
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json))
    with page.expect_response("**/api/rank"):
        page.evaluate(
            """() => {
                const ratio = document.getElementById("ratio");
                for (const value of [0.3, 0.35, 0.4]) {
                    ratio.value = value;
                    ratio.dispatchEvent(new Event("input", { bubbles: true }));
                }
            }"""
        )
    until(page, "document.querySelector('.exit li').textContent.includes('text d')")
    settle(page)
    assert [body["drop_ratio"] for body in sent] == [0.4]
    assert columns(page)[0] == ("Layer 2", ["text d", "text e"])
    with page.expect_response("**/api/rank"):
        page.press("#ratio", "ArrowRight")
    assert sent[-1]["drop_ratio"] == 0.45 and page.inner_text("#ratio-value") == "0.45"
    with page.expect_response("**/api/rank"):
        page.press("#ratio", "Home")
    until(page, "document.querySelectorAll('.exit.last li').length === 5")
    assert columns(page)[2] == ("Layer 6", ["text e", "text b", "text c", "text a", "text d"])
    assert "None stopped here." in page.inner_text(".exit >> nth=0")


def test_the_server_decides_until_the_slider_moves(visit, server):
    page = visit(server)
    with page.expect_request("**/api/rank") as caught:
        ask(page)
    assert caught.value.post_data_json == {"question": "which ?", "candidates": TEXTS}
    uneven = ThreeExits()
    uneven.set_drops([0.5, 0.25])
    with served(uneven) as address:
        assert visit(address).inner_text("#ratio-value") == "as served"


def test_the_last_request_wins(visit, server, ranker):
    page = visit(server)
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.post_data_json["question"]))
    page.fill("#candidates", "text a\ntext b")
    page.fill("#question", SLOW)
    page.press("#question", "Control+Enter")
    until(page, "document.getElementById('status').textContent.startsWith('Ranking')")
    page.fill("#question", "fast ?")
    page.fill("#candidates", "text c")
    page.press("#candidates", "Control+Enter")
    page.wait_for_timeout(50)
    ranker.gate.set()
    settle(page)
    assert [texts for _, texts in columns(page)] == [[], [], ["text c"]]
    assert failed == [SLOW]
    assert page.inner_text("#error") == ""


def test_comparison_with_no_dropping(visit, server):
    page = visit(server)
    page.check("#compare")
    ask(page)
    rows = table(page)
    assert rows[0][6:] == ["Rank, no dropping", "Score, no dropping"]
    others = {row[1]: (row[6].split(), row[7]) for row in rows[1:]}
    assert others["text e"] == (["1", "↑4", "4", "places", "higher"], "9.00")
    assert others["text b"] == (["2", "↓1", "1", "place", "lower"], "3.00")
    assert others["text d"] == (["5", "↓1", "1", "place", "lower"], "0.00")
    assert "No dropping ranks another candidate first; 5 places" in page.inner_text("#status")
    figures = page.inner_text(".figures")
    assert "This ranking" in figures and "80\xa0%" in figures
    assert "With no dropping" in figures and "100\xa0%" in figures
    with page.expect_response("**/api/rank"):
        page.uncheck("#compare")
    until(page, "document.querySelectorAll('thead th').length === 6")


def test_a_ranker_of_one_stage_has_one_column(visit):
    with served(load_ranker("wo")) as address:
        page = visit(address)
        assert page.is_disabled("#ratio") and page.is_disabled("#compare")
        assert "one stage" in page.inner_text("#ratio-hint")
        ask(page, ["no shared word", "which word"], "which ?")
        assert columns(page) == [("All candidates", ["which word", "no shared word"])]
        assert table(page)[0] == ["Rank", "Candidate", "Score", "Relevance"]
        assert "dropped" not in page.inner_text("#results")
        assert "encoder" not in page.inner_text("#results")
        assert "log-odds" not in page.inner_text("#results")


def test_a_calibrated_ranker_may_say_that_none_answers(visit):
    ranker = ThreeExits()
    ranker.set_drops(0.25)
    ranker.threshold = 0.96
    with served(ranker) as address:
        page = visit(address)
        ask(page)  # the relevance of the first is that of log-odds 3, 0.9526
        said = "None of these answers the question, by the threshold of 0.960."
        assert said in page.inner_text("#status")
        ranker.threshold = 0.95
        ask(page)
        until(page, "!document.getElementById('results').innerText.includes('None of these')")


# Bad input


def test_markup_is_shown_as_text(visit, server):
    markup = "<img src=x onerror=\"document.title='run'\"> <b>bold</b> </p><script>1</script>"
    page = visit(server)
    ask(page, [markup, "text a"], "<i>which</i> ?")
    shown = {text for _, texts in columns(page) for text in texts}
    assert shown == {markup, "text a"}
    assert page.locator("#ranking :is(img, script, i:not(.meter i))").count() == 0
    assert page.title().startswith("wqa")


def test_empty_fields_are_named_and_get_the_focus(visit, server):
    page = visit(server)
    page.fill("#candidates", " \n\n")
    page.fill("#question", "")
    page.click("#rank")
    assert page.inner_text("#question-problem") == "Type a question."
    assert page.get_attribute("#candidates", "aria-invalid") == "true"
    assert page.evaluate("document.activeElement.id") == "question"
    assert not [url for url in page.urls if url.endswith("/api/rank")]
    ask(page)
    assert page.get_attribute("#question", "aria-invalid") is None
    page.fill("#question", "")  # no ranking stands beside a question that is not its own
    page.press("#ratio", "ArrowRight")
    page.wait_for_selector("#ranking", state="hidden")
    assert page.inner_text("#status") == "No ranking."
    ask(page)
    assert not page.is_visible("#question-problem")


def test_an_error_of_the_server_is_shown_until_a_ranking_comes(visit, server):
    page = visit(server)
    page.fill("#candidates", "\n".join(["text a"] * 101))
    page.click("#rank")
    page.wait_for_selector("#error:not(:empty)")
    assert "candidates" in page.inner_text("#error") and "100" in page.inner_text("#error")
    assert not page.is_visible("#ranking") and page.inner_text("#status") == "No ranking."
    ask(page)
    assert page.inner_text("#error") == ""


@pytest.mark.parametrize(
    "answer, message",
    [
        (
            {"status": 429, "headers": {"Retry-After": "3"}, "json": {"error": "it is busy"}},
            "it is busy. Try again in 3 s.",
        ),
        ({"status": 200, "body": "<h1>Sign in</h1>"}, "The server's answer is no JSON."),
        (None, "The server does not answer. Is it still running?"),
    ],
)
def test_other_failures_are_said_in_words(visit, server, answer, message):
    page = visit(server)

    def fulfil(route):
        if answer is None:
            route.abort("connectionrefused")
        else:
            route.fulfill(**answer)

    page.route("**/api/rank", fulfil)
    page.click("#rank")
    page.wait_for_selector("#error:not(:empty)")
    assert page.inner_text("#error") == message


def test_a_server_with_a_key_asks_for_it(visit, ranker):
    with served(ranker, api_key=KEY) as address:
        page = visit(address)
        page.wait_for_selector("#key-field:not([hidden])")
        page.click("#rank")
        page.wait_for_selector("#error:not(:empty)")
        assert page.inner_text("#error") == "This server asks for its API key."
        assert page.evaluate("document.activeElement.id") == "key"
        page.keyboard.type("another")
        page.keyboard.press("Enter")
        until(page, "document.getElementById('error').textContent.includes('not the')")
        assert page.inner_text("#error") == "This is not the API key of the server."
        page.fill("#key", "")
        page.keyboard.type(KEY)
        page.keyboard.press("Enter")
        settle(page)
        assert "three_exits" in page.inner_text("#ranker")
        assert page.inner_text("#error") == "" and len(columns(page)) == 3
        page.reload(wait_until="networkidle")
        assert page.input_value("#key") == ""


# Sentences of a collection

ASKED = "which text came ?"


def ask_collection(page, question=ASKED):
    page.fill("#question", question)
    page.press("#question", "Enter")
    settle(page)


def test_sentences_of_the_collection_are_shown_in_their_documents(visit, ranker, collection):
    with served(ranker, index=collection) as address:
        page = visit(address)
        until(page, "document.getElementById('documents').textContent === '8 documents'")
        assert page.is_checked("#collection") and not page.is_visible("#candidates")
        assert page.is_disabled("#compare")
        ask_collection(page)
        texts = ["Text a came first .", "Text b came <b>next</b> .", "Text c came last ."]
        others = ["Nothing is here .", "Text e stands alone ."]
        order = ThreeExits.rank(ranker, ASKED, [*texts, *others]).order
        marked = page.locator(".answers mark").all_inner_texts()
        assert marked == [[*texts, *others][index] for index in order]
        passages = page.locator(".passage").all_inner_texts()
        assert passages[marked.index(texts[1])] == " ".join(texts)
        assert passages[marked.index(texts[0])] == " ".join(texts[:2])
        facts = page.locator(".answers .muted").all_inner_texts()
        assert facts[marked.index(texts[0])].startswith("Texts, relevance 0.")
        assert facts[marked.index(others[0])].startswith("two, relevance 0.")
        assert page.inner_text("#status").startswith("5 sentences of 2 documents ranked in ")
        assert table(page) == [
            ["Exit", "Read", "Dropped"],
            ["Layer 2", "5", "1"],
            ["Layer 4", "4", "1"],
            ["Layer 6", "3", "0"],
        ]
        page.check("#typed")
        ask(page)
        assert len(columns(page)) == 3 and page.locator(".answers").count() == 0
        assert page.url.endswith("/#")


def test_a_window_behind_emoji_is_marked(visit, tmp_path):
    """A window counts code points; the browser's strings count an emoji as two."""
    text = "\U0001f600" * 60 + "which text came \U0001f680 last"

    class Windowed(ThreeExits):
        def _ranking(self, texts):
            spans = [[60, 60 + len("which text came \U0001f680")]] * len(texts)
            return dataclasses.replace(super()._ranking(texts), windows=np.array(spans))

    write_documents(tmp_path / "d.jsonl", [Document("emoji", text), *DOCUMENTS[1:]])
    build_index(tmp_path / "d.jsonl", tmp_path / "index", sentences=True)
    ranker = Windowed()
    ranker.set_drops(0.25)
    with served(ranker, index=str(tmp_path / "index")) as address:
        page = visit(address)
        ask_collection(page)
        passages = page.locator(".passage").all_inner_texts()
        marks = page.locator(".answers mark").all_inner_texts()
        assert marks[passages.index(text)] == "which text came \U0001f680"


def test_the_address_leads_to_the_same_view(visit, ranker, collection):
    with served(ranker, index=collection) as address:
        page = visit(address)
        page.fill("#ratio", "0.5")
        ask_collection(page)
        expected = page.inner_text("#ranking")
        shared = page.url
        assert shared.endswith("/#question=which+text+came+%3F&drop_ratio=0.5")
        page.goto("about:blank")
        page.urls.clear()
        page.goto(shared, wait_until="networkidle")
        settle(page)
        assert page.inner_text("#ranking") == expected
        assert page.input_value("#question") == ASKED and page.input_value("#ratio") == "0.5"
        page.goto(f"{address}/#question=zebra&drop_ratio=7", wait_until="networkidle")
        page.reload(wait_until="networkidle")
        until(page, "document.getElementById('status').textContent.startsWith('No document')")
        assert page.input_value("#ratio") == "0.25"


def test_a_reader_chooses_the_ranker(visit, ranker, collection):
    others = {"words": WordOverlap()}
    with served(ranker, others, index=collection) as address:
        page = visit(address)
        assert page.locator("#model option").all_inner_texts() == ["tested", "words"]
        ask_collection(page)
        assert table(page)[1][0] == "Layer 2"
        page.select_option("#model", "words")
        until(page, "document.getElementById('ratio').disabled")
        settle(page)
        assert page.inner_text("#ranker") == "words \u00b7 wo"
        assert "one stage" in page.inner_text("#ratio-hint")
        expected, shared = page.inner_text("#ranking"), page.url
        assert shared.endswith("&model=words")
        page.goto("about:blank")
        page.urls.clear()
        page.goto(shared, wait_until="networkidle")
        settle(page)
        assert page.input_value("#model") == "words"
        assert page.locator(".answers mark").first.inner_text() in expected
        page.select_option("#model", "tested")
        until(page, "!document.getElementById('ratio').disabled")
        assert page.inner_text("#ratio-hint").startswith("The share of candidates")
    with served(ranker) as address:
        assert not visit(address).is_visible("#model")


def test_no_answer_in_the_collection(visit, collection):
    ranker = ThreeExits()
    ranker.set_drops(0.25)
    ranker.threshold = 1.0
    with served(ranker, index=collection) as address:
        page = visit(address)
        ask_collection(page)
        assert "No answer found, by the threshold of" in page.inner_text("#status")
        page.fill("#question", "zebra ?")
        page.click("#rank")
        until(page, "document.getElementById('status').textContent.startsWith('No document')")
        assert page.inner_text("#status") == "No document has a word of the question."
        page.fill("#question", " ")
        page.click("#rank")
        assert page.is_visible("#question-problem")


def test_the_view_of_a_collection_on_every_screen(visit, ranker, collection):
    with served(ranker, index=collection) as address:
        page = visit(address, width=360, color_scheme="dark", reduced_motion="reduce")
        focused = []
        for _ in range(3):
            page.keyboard.press("Tab")
            focused.append(page.evaluate("document.activeElement.id"))
        assert focused == ["question", "collection", "ratio"]
        ask_collection(page)
        assert page.evaluate(CONTRAST) == []
        for width in (320, 360, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.inner_text("#sources legend") == "Candidates"
        script = "fields => fields.filter(field => !field.labels.length).map(field => field.id)"
        assert page.eval_on_selector_all("input, textarea", script) == []


# Screens and readers

MANY = [f"Sentence {number} of {'many words ' * (number % 5)}" for number in range(60)]
LONG = ["x" * 400, "\u05e9\u05dc\u05d5\u05dd " * 20, "text a"]

#: Texts whose contrast with what is behind them is less than AA asks, and their contrast.
CONTRAST = """() => {
    const parse = color => color.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map(part => part / 255).map(part =>
            part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const behind = element => {
        for (let at = element; at; at = at.parentElement) {
            const color = parse(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return parse(getComputedStyle(document.documentElement).backgroundColor);
    };
    const low = [];
    for (const element of document.body.querySelectorAll("*")) {
        const own = [...element.childNodes].some(
            node => node.nodeType === 3 && node.textContent.trim());
        const isField = element.matches("input:not([type=range]), textarea");
        if (!(own || isField) || !element.checkVisibility()) continue;
        const style = getComputedStyle(element);
        const [one, two] = [light(parse(style.color)), light(behind(element))];
        const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
        if (ratio < 4.5) low.push(`${element.tagName}.${element.className} ${ratio}`);
    }
    return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_both_colour_schemes(visit, server, scheme):
    page = visit(server, color_scheme=scheme, reduced_motion="reduce")
    page.check("#compare")
    ask(page)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(244, 246, 246)") == (scheme == "light")
    assert page.evaluate(CONTRAST) == []
    page.fill("#question", "")
    page.fill("#candidates", "\n".join(["text a"] * 101))
    page.click("#rank")
    assert page.is_visible("#question-problem")
    page.fill("#question", "which ?")
    page.click("#rank")
    page.wait_for_selector("#error:not(:empty)")
    assert page.evaluate(CONTRAST) == []


def test_no_screen_scrolls_sideways(visit, server):
    page, texts = visit(server), [*MANY, *LONG]
    page.check("#compare")
    ask(page, texts)
    assert sum(len(column) for _, column in columns(page)) == len(texts)
    for width in (320, 375, 768, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # On a narrow screen the columns stand one below the other, in the order of the ranking.
        tops = [box.bounding_box()["y"] for box in page.locator(".exit").all()]
        assert tops[::-1] == sorted(tops) and (len(set(tops)) == 3) == (width < 700)


def test_the_page_works_by_keyboard_alone(visit, server):
    page = visit(server)
    focused = []
    for _ in range(5):
        page.keyboard.press("Tab")
        focused.append(page.evaluate("document.activeElement.id"))
    assert focused == ["question", "candidates", "ratio", "compare", "rank"]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    settle(page)
    page.keyboard.press("Tab")
    label = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(label) == "Candidates by exit"
    page.keyboard.press("Tab")
    assert page.evaluate(label) == "Every score"


def test_what_a_screen_reader_needs(visit, server):
    page = visit(server)
    assert page.get_attribute("html", "lang") == "en"
    before = page.inner_text("#status")
    assert page.get_attribute("#status", "role") == "status"
    assert page.get_attribute("#error", "role") == "alert"
    page.check("#compare")
    ask(page)
    assert page.inner_text("#status") != before
    script = "fields => fields.filter(field => !field.labels.length).map(field => field.id)"
    assert page.eval_on_selector_all("input, textarea", script) == []
    levels = page.eval_on_selector_all(
        "h1, h2, h3, h4, h5, h6", "all => all.map(h => +h.tagName[1])"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in zip(levels, levels[1:]))
    ids = page.eval_on_selector_all("[id]", "all => all.map(element => element.id)")
    assert len(ids) == len(set(ids))
    for name in ("aria-describedby", "aria-labelledby", "for"):
        script = f"all => all.flatMap(element => element.getAttribute('{name}').split(' '))"
        assert set(page.eval_on_selector_all(f"[{name}]", script)) <= set(ids)
    scopes = page.eval_on_selector_all("th", "all => all.map(head => head.scope)")
    assert scopes == ["col"] * 8 + ["row"] * 5
    assert page.locator("table caption").count() == 1
    assert page.locator("[role=region]:not([aria-label])").count() == 0
    assert page.get_attribute("#ratio", "aria-valuetext") == "0.25"
    page.click("#rank")
    assert page.locator("main").count() == page.locator("h1").count() == 1
