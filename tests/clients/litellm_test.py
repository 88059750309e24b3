"""`litellm`, through its providers for OpenAI's API and for vLLM."""

import asyncio

import litellm
import pytest
from spry_server import NAME

MESSAGES = [{"role": "user", "content": "Why is the sky blue?"}]
PROMPT = "The capital of France is"
providers = pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])


def request(server, provider, **fields):
    common = {"model": f"{provider}/{NAME}", "api_base": f"{server.url}/v1", "api_key": "none"}
    return {**common, "max_tokens": 12, "temperature": 0, "num_retries": 0, **fields}


def chat(server, provider="openai", **fields):
    return litellm.completion(**request(server, provider, messages=MESSAGES, **fields))


def complete(server, **fields):
    fields = {"prompt": PROMPT, **fields}
    return litellm.text_completion(**request(server, "text-completion-openai", **fields))


def joined(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@providers
def test_chat(server, provider):
    whole = chat(server, provider)
    assert whole.choices[0].message.content and whole.choices[0].finish_reason in ("stop", "length")
    assert 0 < whole.usage.completion_tokens <= 12
    chunks = list(chat(server, provider, stream=True, stream_options={"include_usage": True}))
    assert joined(chunks) == whole.choices[0].message.content
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


@providers
def test_n_and_logprobs(server, provider):
    answer = chat(server, provider, n=3, temperature=1, seed=5, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    for choice in answer.choices:
        assert choice.logprobs.content
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


def test_completions(server):
    whole = complete(server, logprobs=1)
    assert "Paris" in whole.choices[0].text
    assert "".join(whole.choices[0].logprobs.tokens) == whole.choices[0].text
    streamed = complete(server, stream=True)
    assert "".join(c.choices[0].text or "" for c in streamed) == whole.choices[0].text


def test_async(server):
    async def ask(seed):
        asked = request(server, "openai", messages=MESSAGES, temperature=1, seed=seed, stream=True)
        return joined([chunk async for chunk in await litellm.acompletion(**asked)])

    async def ask_all():
        return await asyncio.gather(*(ask(i) for i in range(6)))

    first, second = asyncio.run(ask_all()), asyncio.run(ask_all())
    assert first == second and len(set(first)) > 1


@providers
def test_errors(server, slow_server, provider):
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        chat(server, provider, temperature=-3)
    with pytest.raises(litellm.ContextWindowExceededError):
        long = [{"role": "user", "content": "word " * 9000}]
        litellm.completion(**request(server, provider, messages=long))
    with pytest.raises(litellm.NotFoundError, match="gpt-4"):
        asked = request(server, provider, messages=MESSAGES, model=f"{provider}/gpt-4")
        litellm.completion(**asked)
    with pytest.raises(litellm.AuthenticationError):
        chat(slow_server, provider, api_key="wrong")


def test_rate_limit(slow_server):
    async def ask():
        asked = request(slow_server, "openai", messages=MESSAGES, max_tokens=30)
        return await litellm.acompletion(**{**asked, "api_key": "first-key", "max_retries": 0})

    async def ask_all():
        return await asyncio.gather(*(ask() for _ in range(6)), return_exceptions=True)

    answers = asyncio.run(ask_all())
    refused = [a for a in answers if isinstance(a, litellm.RateLimitError)]
    assert len(refused) == 2, answers
    served = [a for a in answers if not isinstance(a, Exception)]
    assert [a.usage.completion_tokens for a in served] == [30] * 4


def test_timeout_and_cancel(slow_server):
    fields = {"api_key": "first-key", "max_tokens": 2000}
    with pytest.raises(litellm.Timeout):
        chat(slow_server, timeout=0.3, **fields)
    assert slow_server.await_idle(seconds=1)

    async def take_three():
        asked = request(slow_server, "openai", messages=MESSAGES, stream=True, **fields)
        stream = await litellm.acompletion(**asked)
        for _ in range(3):
            await anext(stream)
        await stream.completion_stream.close()

    asyncio.run(take_three())
    assert slow_server.await_idle(seconds=1)
