"""The servers that the tests here share, and clients of them. Run by ./test --all; by hand:

    $(tools/setup_venv.sh clients) -m pytest tests/clients
"""

import os

import pytest
from spry_server import SpryServer

# litellm would fetch a list of prices, and langchain's tracing would look for a service.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["LANGSMITH_TRACING"] = "false"

import openai  # noqa: E402  (after the settings)

STEP_MILLIS = 20


@pytest.fixture(scope="session")
def server():
    """The demo model on the CPU, with default settings."""
    with SpryServer(log="clients-cpu") as running:
        yield running


@pytest.fixture(scope="session")
def slow_server():
    """Two rows and two places to wait, API keys, 20 ms a token: for limits and cancelling."""
    flags = ["--device", "null", "--null-step-us", STEP_MILLIS * 1000, "--max-num-seqs", 2]
    flags += ["--max-queue", 2, "--api-key", "first-key", "--api-key", "second-key"]
    with SpryServer(*flags, log="clients-null") as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def slow_client(slow_server):
    made = openai.OpenAI(base_url=f"{slow_server.url}/v1", api_key="first-key", max_retries=0)
    with made:
        yield made
    # Whatever a test left behind must not be in the next one's way.
    assert slow_server.await_idle()
