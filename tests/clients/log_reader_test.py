"""A server whose log nobody reads: it goes on, and ends when it is told to."""

import http.client
import json
import re
import subprocess

import pytest

from spry_server import SPRY, demo_model

REQUESTS = 600  # a pipe holds the lines of about 240


def start():
    command = [SPRY, "serve", demo_model(), "--device", "null", "--port", "0"]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def await_port(server):
    for line in server.stderr:
        found = re.search(rb" serving address=\S*:(\d+)", line)
        if found:
            return int(found.group(1))
    raise AssertionError("the server did not start")


def ask(port, count):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(count):
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [9], "max_tokens": 1}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
    connection.close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_log_that_nobody_reads(closes):
    server = start()
    try:
        port = await_port(server)
        if closes:
            server.stderr.close()
        ask(port, REQUESTS)
        server.terminate()
        assert server.wait(timeout=20) == 0
    finally:
        server.kill()
