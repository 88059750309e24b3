"""`langchain-openai`, on the demo model and on a server that is slow on purpose."""

import asyncio
import time

import openai
import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI
from spry_server import NAME

QUESTION = [SystemMessage("You are a helpful AI assistant."), HumanMessage("Why is the sky blue?")]
PROMPT = "The capital of France is"


def chat_model(server, **fields):
    fields = {"max_tokens": 12, "temperature": 0, "api_key": "none", **fields}
    return ChatOpenAI(model=NAME, base_url=f"{server.url}/v1", max_retries=0, **fields)


def text_model(server, **fields):
    fields = {"max_tokens": 8, "temperature": 0, "api_key": "none", **fields}
    return OpenAI(model=NAME, base_url=f"{server.url}/v1", max_retries=0, **fields)


def test_chat(server):
    answer = chat_model(server).invoke(QUESTION)
    assert answer.content
    assert answer.response_metadata["finish_reason"] in ("stop", "length")
    assert answer.response_metadata["model_name"] == NAME
    usage = answer.usage_metadata
    assert 0 < usage["output_tokens"] <= 12
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_chat_stream(server):
    model = chat_model(server, stream_usage=True)
    chunks = list(model.stream(QUESTION))
    whole = model.invoke(QUESTION)
    assert len(chunks) > 5 and "".join(c.content for c in chunks) == whole.content
    total = sum(chunks[1:], chunks[0])
    assert total.usage_metadata["total_tokens"] == whole.usage_metadata["total_tokens"]


def test_chat_n_and_logprobs(server):
    model = chat_model(server, n=3, temperature=1, seed=5)
    (answers,) = model.generate([QUESTION]).generations
    assert len(answers) == 3 and len({a.text for a in answers}) > 1
    bound = chat_model(server).bind(logprobs=True, top_logprobs=2)
    content = bound.invoke(QUESTION).response_metadata["logprobs"]["content"]
    assert len(content) > 1 and all(len(token["top_logprobs"]) == 2 for token in content)


def test_batch_and_async(server):
    model = chat_model(server, temperature=1, seed=9)
    questions = [f"Tell me about the number {i}." for i in range(6)]
    alone = [model.invoke(question).content for question in questions]
    assert [a.content for a in model.batch(questions)] == alone
    assert [a.content for a in asyncio.run(model.abatch(questions))] == alone


def test_completions(server):
    model = text_model(server)
    whole = model.invoke(PROMPT)
    assert "Paris" in whole
    assert "".join(model.stream(PROMPT)) == whole
    several = text_model(server, n=2, best_of=2, temperature=1, seed=1).generate([PROMPT, "One,"])
    assert [len(choices) for choices in several.generations] == [2, 2]
    assert several.llm_output["token_usage"]["total_tokens"] > 16


def test_errors(server, slow_server):
    with pytest.raises(openai.BadRequestError, match="temperature"):
        chat_model(server, temperature=-3).invoke(QUESTION)
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        chat_model(server).bind(model="gpt-4").invoke(QUESTION)
    with pytest.raises(openai.AuthenticationError):
        chat_model(slow_server, api_key="wrong").invoke(QUESTION)


def test_timeout_and_cancel(slow_server):
    model = chat_model(slow_server, api_key="first-key", max_tokens=2000, timeout=0.3)
    begin = time.monotonic()
    with pytest.raises(openai.APITimeoutError):
        model.invoke(QUESTION)
    assert time.monotonic() - begin < 2 and slow_server.await_idle(seconds=1)
    stream = model.stream(QUESTION)
    next(stream)
    stream.close()
    assert slow_server.await_idle(seconds=1)
