"""Errors become the `openai` package's exceptions; who stops waiting frees the engine."""

import asyncio
import time

import openai
import pytest
from spry_server import NAME, SpryServer

MESSAGES = [{"role": "user", "content": "hi"}]


def chat(client, **fields):
    fields = {"model": NAME, "messages": MESSAGES, "max_tokens": 4, **fields}
    return client.chat.completions.create(**fields)


@pytest.mark.parametrize(
    "fields, param, words",
    [
        ({"temperature": -1}, "temperature", "temperature"),
        ({"top_p": 7}, "top_p", "top_p"),
        ({"n": 0}, "n", "n "),
        ({"max_tokens": "many"}, "max_tokens", "max_tokens"),
        ({"logprobs": True, "top_logprobs": 99}, "top_logprobs", "20"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "x"),
        ({"messages": []}, "messages", "messages"),
        ({"messages": [{"content": "x"}]}, "messages", "role"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format", "response_format"),
        ({"max_tokens": 10**6}, "max_tokens", "8192"),
    ],
)
def test_bad_requests(client, fields, param, words):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **fields)
    error = caught.value
    assert error.status_code == 400 and error.type == "invalid_request_error"
    assert (error.param or "").startswith(param), error.body
    assert words in error.message
    assert chat(client).usage.completion_tokens <= 4  # on the same connection


def test_long_prompt(client):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, messages=[{"role": "user", "content": "word " * 9000}])
    assert "8192" in caught.value.message
    assert caught.value.code == "context_length_exceeded"


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        chat(client, model="gpt-4")
    error = caught.value
    assert (error.code, error.param) == ("model_not_found", "model") and "gpt-4" in error.message
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=NAME, input="x")


def test_api_keys(slow_server):
    for key in ("first-key", "second-key"):
        with openai.OpenAI(base_url=f"{slow_server.url}/v1", api_key=key) as client:
            assert client.models.list().data[0].id == NAME
    with openai.OpenAI(base_url=f"{slow_server.url}/v1", api_key="first-ke") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            chat(client)
    assert caught.value.code == "invalid_api_key" and caught.value.status_code == 401


def test_full_queue(slow_server, slow_client):
    """Two run, two wait, the fifth is refused, and served when it tries again as it is told."""
    streams = [chat(slow_client, max_tokens=30, stream=True) for _ in range(2)]
    for stream in streams:
        next(stream)
    rest = asyncio.run(ask_three(slow_server))
    refused = [error for error in rest if isinstance(error, openai.RateLimitError)]
    assert len(refused) == 1, rest
    assert refused[0].status_code == 429 and refused[0].code == "rate_limit_exceeded"
    assert int(refused[0].response.headers["retry-after"]) >= 1
    for stream in streams:
        assert sum(1 for _ in stream) >= 29


async def ask_three(server):
    url = f"{server.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="first-key", max_retries=0) as client:
        asked = [chat(client, max_tokens=30) for _ in range(3)]
        return await asyncio.gather(*asked, return_exceptions=True)


def test_retries(slow_server, slow_client):
    """The client's own retries bring it through a queue that is full for a while."""

    async def ask_all():
        url = f"{slow_server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="first-key", max_retries=8) as client:
            return await asyncio.gather(*(chat(client, max_tokens=10) for _ in range(12)))

    assert [a.usage.completion_tokens for a in asyncio.run(ask_all())] == [10] * 12


@pytest.mark.parametrize("stream", [False, True])
def test_timeouts(slow_server, slow_client, stream):
    begin = time.monotonic()
    with pytest.raises(openai.APITimeoutError):
        # A stream's time starts anew with each chunk; 10 ms are less than one takes.
        list(chat(slow_client, max_tokens=2000, stream=stream, timeout=0.01 if stream else 0.2))
    assert time.monotonic() - begin < 2
    assert slow_server.await_idle(seconds=1)


def test_closed_stream_frees_its_request(slow_server, slow_client):
    before = aborted(slow_server)
    stream = chat(slow_client, max_tokens=2000, n=2, stream=True)
    for _ in range(5):
        next(stream)
    assert slow_server.metric("num_requests_running") == 2
    stream.close()
    assert slow_server.await_idle(seconds=1)
    assert aborted(slow_server) == before + 1


@pytest.mark.parametrize("stream", [False, True])
def test_cancelled_task_frees_its_request(slow_server, slow_client, stream):
    async def ask_and_cancel():
        url = f"{slow_server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="first-key") as client:

            async def ask():
                answer = await chat(client, max_tokens=2000, stream=stream)
                async for _ in answer:
                    pass

            task = asyncio.create_task(ask())
            while slow_server.requests_in_engine() == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await asyncio.to_thread(slow_server.await_idle, 1)

    before = aborted(slow_server)
    assert asyncio.run(ask_and_cancel())
    assert aborted(slow_server) == before + 1


def aborted(server):
    text = server.ask("GET", "/metrics")[2].decode()
    lines = [line for line in text.splitlines() if 'finished_reason="abort"' in line]
    return float(lines[0].split()[-1]) if lines else 0


def test_server_that_ends():
    """Running streams come to their end; new requests find nobody."""
    with SpryServer("--device", "null", "--null-step-us", 20000, log="clients-end") as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
            stream = chat(client, max_tokens=40, stream=True)
            next(stream)
            server.process.terminate()
            time.sleep(0.1)
            with pytest.raises(openai.APIConnectionError):
                chat(client)
            chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason == "length" and len(chunks) >= 39
