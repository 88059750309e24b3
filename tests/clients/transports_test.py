"""TLS and Unix sockets, as the `openai` package uses them."""

import socket
import ssl
import subprocess

import httpx2
import openai
import pytest
from spry_server import NAME, SpryServer

MESSAGES = [{"role": "user", "content": "hi"}]


def stream_words(url, transport):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", http_client=transport) as client:
        chunks = client.chat.completions.create(
            model=NAME, messages=MESSAGES, max_tokens=8, stream=True
        )
        return [chunk.choices[0].delta.content for chunk in chunks]


def test_tls(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", key, "-out", certificate]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    flags = ["--device", "null", "--ssl-certfile", certificate, "--ssl-keyfile", key]
    with SpryServer(*flags, log="clients-tls") as server:
        trusted = ssl.create_default_context(cafile=str(certificate))
        url = f"https://localhost:{server.port}"
        words = stream_words(url, openai.DefaultHttpxClient(verify=trusted))
        assert len(words) == 9
        with pytest.raises(openai.APIConnectionError):
            with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
                client.models.list()  # which trusts other authorities


def test_unix_socket(tmp_path):
    path = tmp_path / "spry.sock"
    with SpryServer("--device", "null", "--uds", path, log="clients-uds"):
        transport = httpx2.HTTPTransport(uds=str(path))
        words = stream_words("http://spry", openai.DefaultHttpxClient(transport=transport))
        assert len(words) == 9
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(OSError):
        late.connect(str(path))
