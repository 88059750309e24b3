"""Engines as child processes: start, generate so many tokens from prompts of ids, stop. Greedy, no
end of sequence, nothing cached from one call to the next."""

import http.client
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

HERE = pathlib.Path(__file__).parent
MODEL_THREADS = 2


def peak_mib(pid):
    """The peak resident memory of a process, file pages included."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class HttpEngine:
    """A server that is asked over HTTP, a thread for each prompt."""

    def __init__(self, name, command):
        self.name, self.command = name, command

    def start(self):
        self.port = free_port()
        self.process = subprocess.Popen(
            [*self.command, "--host", "127.0.0.1", "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"{self.name} ended with {self.process.returncode}: {self.command}"
                )
            try:
                if self.request("GET", "/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.002)

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(
            method, path, body and json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        return response.status, response.read()

    def generate(self, prompts, outs):
        made = [0] * len(prompts)

        def ask(i):
            made[i] = self.complete(prompts[i], outs[i])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(made)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Spry(HttpEngine):
    def __init__(self, name, program, model, *flags):
        super().__init__(
            name, [program, "serve", str(model), "--threads", str(MODEL_THREADS), *flags]
        )

    def complete(self, prompt, tokens):
        status, answer = self.request(
            "POST",
            "/v1/completions",
            {
                "prompt": prompt,
                "max_tokens": tokens,
                "ignore_eos": True,
                "temperature": 0,
                "cache_salt": os.urandom(8).hex(),
            },
        )  # a fresh salt: no prefix is found
        return json.loads(answer)["usage"]["completion_tokens"] if status == 200 else 0


class LlamaCpp(HttpEngine):
    def __init__(self, name, program, model, slots):
        # Each slot has its own part of the context: 512 positions.
        threads = str(MODEL_THREADS)
        super().__init__(
            name,
            [
                str(program),
                "-m",
                str(model),
                "-t",
                threads,
                "-tb",
                threads,
                "-np",
                str(slots),
                "-c",
                str(max(2048, 512 * slots)),
                "--no-webui",
            ],
        )

    def complete(self, prompt, tokens):
        status, answer = self.request(
            "POST",
            "/completion",
            {
                "prompt": prompt,
                "n_predict": tokens,
                "ignore_eos": True,
                "cache_prompt": False,
                "temperature": 0,
                "samplers": ["top_k"],
                "top_k": 1,
            },
        )
        return json.loads(answer)["tokens_predicted"] if status == 200 else 0


class Library:
    """A Python library in an environment of its own: a line of JSON to driver.py is a call."""

    def __init__(self, name, python, kind, model, *options):
        self.name = name
        self.command = [
            str(python),
            str(HERE / "driver.py"),
            kind,
            str(model),
            str(MODEL_THREADS),
            *options,
        ]

    def start(self):
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.answer()

    def answer(self):
        # Libraries print what they like beside the driver's lines.
        for line in self.process.stdout:
            if line.startswith("MADE "):
                return int(line.split()[1])
        raise RuntimeError(f"{self.name} ended with {self.process.wait()}: {self.command}")

    def generate(self, prompts, outs):
        self.process.stdin.write(json.dumps([prompts, outs]) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
