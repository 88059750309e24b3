"""Starts `spry serve` for tests and benchmarks, asks it how it is, and ends it."""

import http.client
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPRY = pathlib.Path(os.environ.get("SPRY_PROGRAM", ROOT / "build/release/spry"))
NAME = "smollm2"
START_SECONDS = 60


def demo_model():
    """The file that tools/setup_model.py puts into the cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    file = pathlib.Path(cache) / "spry/SmolLM2-135M-Instruct.Q4_1.gguf"
    return os.environ.get("SPRY_DEMO_MODEL", str(file))


class SpryServer:
    """A running server; a context manager that ends it and checks that it ended well."""

    def __init__(self, *flags, model=None, port=0, spry=SPRY, log="serve"):
        self.log = ROOT / f"build/log/{log}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [str(spry), "serve", model or demo_model(), "--served-model-name", NAME]
        command += ["--port", str(port), *map(str, flags)]
        self.started = time.monotonic()
        with self.log.open("w") as stderr:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )
        self.pid = self.process.pid
        self.port = port or self._await_port()

    def _await_port(self):
        while time.monotonic() < self.started + START_SECONDS:
            found = re.search(r" serving address=(?:https?://\S*:(\d+)|unix:)", self.log_text())
            if found:
                return int(found.group(1) or 0)
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        self.process.kill()
        raise RuntimeError(f"spry serve did not start:\n{self.log_text()}")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.stop()
        else:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """SIGTERM; all that was asked for has ended, so the server must end soon, and well."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        if code != 0:
            raise RuntimeError(f"spry serve ended with {code}:\n{self.log_text()[-4000:]}")

    def log_text(self):
        return self.log.read_text(errors="replace")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method, path, body=None, headers=None, timeout=120):
        """Returns (status, header fields, body), the body parsed when it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = None if body is None else json.dumps(body)
            fields = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, text, fields)
            response = connection.getresponse()
            content = response.read()
            if response.getheader("Content-Type", "").startswith("application/json"):
                content = json.loads(content)
            return response.status, response.headers, content
        finally:
            connection.close()

    def complete(self, **body):
        """The answer of /v1/completions, which must be 200."""
        status, _, answer = self.ask("POST", "/v1/completions", body)
        if status != 200:
            raise RuntimeError(f"HTTP {status}: {answer}")
        return answer

    def metric(self, name):
        """The sum of vllm:NAME over its labels."""
        text = self.ask("GET", "/metrics")[2].decode()
        values = re.findall(rf"^vllm:{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values))

    def requests_in_engine(self):
        return int(self.metric("num_requests_running") + self.metric("num_requests_waiting"))

    def await_idle(self, seconds=10):
        """True when the engine holds no request, within that time."""
        end = time.monotonic() + seconds
        while self.requests_in_engine() != 0:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def resident_bytes(self):
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def cpu_seconds(self):
        """User and system time of every thread so far."""
        return sum(self.thread_cpu_seconds().values())

    def thread_cpu_seconds(self):
        """By thread id; the first thread, whose id is the process's, carries the connections."""
        seconds = {}
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            seconds[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
        return seconds
