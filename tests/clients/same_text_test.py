"""What comes through HTTP is what `spry generate` makes of the same request, exactly: ids and text,
whole or streamed, alone or among others."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from spry_server import SPRY, demo_model

STORY = "Once upon a time, in a small village by the sea,"
REQUESTS = [
    {"prompt": STORY, "temperature": 0, "max_tokens": 48},
    {"prompt": STORY, "temperature": 0.8, "seed": 1, "max_tokens": 48},
    {"prompt": STORY, "temperature": 1.3, "seed": 2, "top_p": 0.9, "top_k": 50, "max_tokens": 40},
    {"prompt": STORY, "temperature": 1, "seed": 3, "min_p": 0.05, "n": 3, "max_tokens": 24},
    {"prompt": "def add(a, b):", "temperature": 0, "repetition_penalty": 1.2, "max_tokens": 32},
    {"prompt": "Paris Paris Paris", "temperature": 0, "presence_penalty": 1.5, "max_tokens": 24},
    {"prompt": "a a a a", "temperature": 0.7, "seed": 4, "frequency_penalty": 0.6},
    {"prompt": "In zwölf Städten – 日本語, 🎈:", "temperature": 1, "seed": 5, "max_tokens": 32},
    {"prompt": "List: one, two,", "temperature": 0, "stop": [" four", "\n"], "max_tokens": 32},
    {"prompt": STORY, "temperature": 0, "stop": ["the"], "include_stop_str_in_output": True},
    {"prompt": STORY, "temperature": 0, "logit_bias": {"260": -100, "28": 5}, "max_tokens": 24},
    {"prompt": STORY, "temperature": 0, "bad_words": [" the", " was"], "max_tokens": 24},
    {"prompt": STORY, "temperature": 0, "stop_token_ids": [30], "min_tokens": 20, "max_tokens": 64},
    {"prompt": "The end.", "temperature": 1, "seed": 6, "ignore_eos": True, "max_tokens": 64},
    {"prompt": "1 2 3", "temperature": 1, "seed": 7, "allowed_token_ids": [33, 34, 35, 216]},
]
CHATS = ["Why is the sky blue?", "Say hello in French.", "Was ist 2 + 2? 🤔"]


def generate(*arguments):
    command = [str(SPRY), "generate", demo_model(), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """By request: (ids, text, finish reason) of each of its answers."""
    file = tmp_path_factory.mktemp("generate") / "requests.jsonl"
    file.write_text("".join(json.dumps(request) + "\n" for request in REQUESTS))
    answers = [[] for _ in REQUESTS]
    for line in sorted(generate("--input", str(file)), key=lambda a: (a["index"], a["choice"])):
        answers[line["index"]].append((line["token_ids"], line["text"], line["finish_reason"]))
    return answers


def whole(server, request):
    answer = server.complete(return_token_ids=True, **request)
    return [(c["token_ids"], c["text"], c["finish_reason"]) for c in answer["choices"]]


def streamed(server, request, path="/v1/completions"):
    body = {**request, "return_token_ids": True, "stream": True}
    status, _, events = server.ask("POST", path, body)
    assert status == 200
    texts = [event.removeprefix("data: ") for event in events.decode().split("\n\n")]
    assert texts[-2:] == ["[DONE]", ""]
    answers = {}
    for text in texts[:-2]:
        (choice,) = json.loads(text)["choices"]
        ids, parts, finishes = answers.setdefault(choice["index"], ([], [], []))
        ids += choice["token_ids"]
        parts.append(choice["delta"].get("content") if "delta" in choice else choice["text"])
        finishes.append(choice["finish_reason"])
    return [
        (ids, "".join(part or "" for part in parts), finishes[-1])
        for _, (ids, parts, finishes) in sorted(answers.items())
    ]


@pytest.mark.parametrize("ask", [whole, streamed])
def test_completions(server, wanted, ask):
    for request, answers in zip(REQUESTS, wanted):
        assert ask(server, request) == answers, request


@pytest.mark.parametrize("ask", [whole, streamed])
def test_completions_among_others(server, wanted, ask):
    with ThreadPoolExecutor(3 * len(REQUESTS)) as threads:
        answers = list(threads.map(lambda request: ask(server, request), 3 * REQUESTS))
    assert answers == 3 * wanted


def test_the_seed_flag_is_the_requests_seed(wanted):
    flags = ["--prompt", STORY, "--temperature", "0.8", "--seed", "1", "--max-tokens", "48"]
    (line,) = generate(*flags)
    assert [(line["token_ids"], line["text"], line["finish_reason"])] == wanted[1]


def test_prompt_of_ids(server, wanted):
    ids = server.ask("POST", "/tokenize", {"prompt": STORY})[2]["tokens"]
    assert whole(server, {**REQUESTS[1], "prompt": ids}) == wanted[1]


def test_greedy_chats(server):
    messages = [part for chat in CHATS for part in ("--chat", chat)]
    lines = generate(*messages, "--temperature", "0", "--max-tokens", "40")
    for chat, line in zip(CHATS, sorted(lines, key=lambda line: line["index"]), strict=True):
        request = {"messages": [{"role": "user", "content": chat}]}
        request |= {"temperature": 0, "max_tokens": 40}
        want = (line["token_ids"], line["text"], line["finish_reason"])
        assert streamed(server, request, "/v1/chat/completions") == [want]


def test_seeded_chat(server, tmp_path):
    """By the ids of its prompt, for `spry generate --chat` has no system message."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": CHATS[0]}]
    sampling = {"temperature": 0.9, "seed": 17, "max_tokens": 40}
    ids = server.ask("POST", "/tokenize", {"messages": messages})[2]["tokens"]
    file = tmp_path / "requests.jsonl"
    file.write_text(json.dumps({"prompt_token_ids": ids, **sampling}))
    (line,) = generate("--input", str(file))
    want = (line["token_ids"], line["text"], line["finish_reason"])
    request = {"messages": messages, **sampling}
    assert streamed(server, request, "/v1/chat/completions") == [want]
