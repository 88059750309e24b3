"""What people do with the `openai` package, on the demo model."""

import asyncio

import openai
import pytest
from spry_server import NAME

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
PROMPT = "The capital of France is"


def chat(client, **fields):
    fields = {"model": NAME, "messages": QUESTION, "max_tokens": 12, "temperature": 0, **fields}
    return client.chat.completions.create(**fields)


def complete(client, **fields):
    fields = {"model": NAME, "prompt": PROMPT, "max_tokens": 12, "temperature": 0, **fields}
    return client.completions.create(**fields)


def joined(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_chat(client):
    answer = chat(client)
    choice = answer.choices[0]
    assert len(choice.message.content) > 10
    assert (choice.message.role, choice.index, choice.logprobs) == ("assistant", 0, None)
    assert choice.finish_reason in ("stop", "length")
    assert answer.object == "chat.completion" and answer.model == NAME
    assert answer.id.startswith("chatcmpl-") and answer.system_fingerprint.startswith("spry-")
    assert answer.usage.prompt_tokens > 30 and answer.usage.completion_tokens <= 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_takes_what_clients_send(client):
    parts = [{"type": "text", "text": text} for text in ("What is the capital", "of France?")]
    messages = [
        {"role": "system", "content": "You are a helpful AI assistant."},
        {"role": "user", "content": parts},
    ]
    answer = chat(
        client,
        messages=messages,
        max_tokens=openai.omit,
        max_completion_tokens=3,
        stop=None,
        user="someone",
        metadata={"a": "b"},
        tools=openai.omit,
        response_format={"type": "text"},
    )
    assert answer.usage.completion_tokens == 3


def test_stream_equals_whole(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert joined(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert finishes[:-1] == [None] * (len(finishes) - 1)
    assert finishes[-1] == whole.choices[0].finish_reason
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chat(client, stream=True))


def test_stream_helper(client):
    # The helper takes an end by length for an error.
    fields = {"model": NAME, "messages": QUESTION, "stop": [" "], "temperature": 0}
    with client.chat.completions.stream(**fields) as stream:
        text = "".join(e.delta for e in stream if e.type == "content.delta")
        final = stream.get_final_completion()
    whole = client.chat.completions.create(**fields)
    assert text == final.choices[0].message.content == whole.choices[0].message.content


def test_completions(client):
    answer = complete(client)
    assert "Paris" in answer.choices[0].text
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    chunks = list(complete(client, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == answer.choices[0].text
    assert complete(client, echo=True).choices[0].text == PROMPT + answer.choices[0].text


def test_completions_of_several_prompts(client):
    ids = client.post("/../tokenize", body={"prompt": PROMPT}, cast_to=object)["tokens"]
    texts = complete(client, prompt=[PROMPT, "One, two, three,"], n=2, temperature=0.8, seed=3)
    assert [c.index for c in texts.choices] == [0, 1, 2, 3]
    assert len({c.text for c in texts.choices}) == 4
    assert complete(client, prompt=ids).choices[0].text == complete(client).choices[0].text
    lists = complete(client, prompt=[ids, ids[:2]])
    assert lists.choices[0].text == complete(client).choices[0].text
    assert lists.usage.prompt_tokens == len(ids) + 2


def test_n(client):
    fields = {"n": 3, "temperature": 1, "seed": 11, "max_tokens": 6}
    whole = chat(client, **fields)
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) > 1 and [c.index for c in whole.choices] == [0, 1, 2]
    streamed, finishes = ["", "", ""], [[], [], []]
    for chunk in chat(client, stream=True, **fields):
        choice = chunk.choices[0]
        streamed[choice.index] += choice.delta.content or ""
        finishes[choice.index] += [choice.finish_reason] if choice.finish_reason else []
    assert streamed == texts
    assert finishes == [[c.finish_reason] for c in whole.choices]


def test_seeds_and_sampling_fields(client):
    hot = {"temperature": 1.5, "top_p": 0.95, "presence_penalty": 0.5, "frequency_penalty": 0.5}
    hot["extra_body"] = {"top_k": 100, "min_p": 0.01, "repetition_penalty": 1.1}
    texts = [chat(client, seed=s, **hot).choices[0].message.content for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    unseeded = {chat(client, temperature=1.5).choices[0].message.content for _ in range(4)}
    assert len(unseeded) > 1
    stopped = complete(client, stop=[" Paris"]).choices[0]
    assert "Paris" not in stopped.text and stopped.finish_reason == "stop"
    assert complete(client, logit_bias={"0": 100}, max_tokens=2).choices[0].text == ""


def test_chat_logprobs(client):
    whole = chat(client, logprobs=True, top_logprobs=3)
    content = whole.choices[0].logprobs.content
    assert len(content) == whole.usage.completion_tokens
    assert "".join(t.token for t in content).startswith(whole.choices[0].message.content)
    for token in content:
        assert token.token == bytes(token.bytes).decode() and token.logprob <= 0
        likeliest = [t.logprob for t in token.top_logprobs]
        assert likeliest == sorted(likeliest, reverse=True) and len(likeliest) == 3
        assert token.top_logprobs[0].token == token.token  # greedy
    chunks = list(chat(client, logprobs=True, top_logprobs=3, stream=True))
    streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert streamed == content
    assert chat(client, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []


def test_completion_logprobs(client):
    choice = complete(client, logprobs=2).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    for at, token in zip(logprobs.text_offset, logprobs.tokens):
        assert choice.text[at:].startswith(token)
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert top[token] == logprob == max(top.values())
    echoed = complete(client, logprobs=1, echo=True, max_tokens=1).choices[0].logprobs
    assert echoed.token_logprobs[0] is None and "".join(echoed.tokens[:-1]) == PROMPT


def test_models(client):
    (model,) = client.models.list().data
    assert (model.id, model.object) == (NAME, "model")
    assert client.models.retrieve(NAME).id == NAME


def test_raw_response(client):
    raw = client.completions.with_raw_response.create(
        model=NAME, prompt=PROMPT, max_tokens=1, extra_headers={"X-Request-Id": "my-own-id"}
    )
    assert raw.headers["x-request-id"] == "my-own-id" and raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    assert "my-own-id" in raw.parse().id
    with client.chat.completions.with_streaming_response.create(
        model=NAME, messages=QUESTION, max_tokens=2, stream=True
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


def test_async(server):
    async def ask_all():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:

            async def ask(i):
                stream = await chat(client, seed=i, temperature=1, stream=True)
                return joined([chunk async for chunk in stream])

            alone = [await ask(i) for i in range(8)]
            return alone, await asyncio.gather(*(ask(i) for i in range(8)))

    alone, together = asyncio.run(ask_all())
    assert alone == together and len(set(alone)) > 1


@pytest.mark.parametrize("path", ["/health", "/ping", "/version", "/metrics", "/server_info", "/"])
def test_other_paths(server, path):
    assert server.ask("GET", path)[0] == 200
