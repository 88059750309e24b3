"""The dialogues on which chat templates are rendered (tools/chat_template_goldens.py): each shape
of request that a client may send, and some that it should not."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Says what the weather is like.\nUse it for <today> & \"now\" only.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Looks for documents.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": ["string", "null"], "description": "What to look for"},
                "filters": {
                    "type": "object",
                    "description": "Narrows the search",
                    "properties": {
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "after": {"anyOf": [{"type": "string"}, {"type": "number"}]},
                        "exact": {"type": "boolean", "default": False},
                    },
                },
                "limit": {"type": "number", "default": 1.5},
            },
            "required": ["query", "filters"],
        },
        "return": {"type": "array", "items": {"type": "object"}},
    },
}
EMPTY_TOOL = {"type": "function",
              "function": {"name": "ping", "description": "",
                           "parameters": {"type": "object", "properties": {}}}}


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


def call(name, arguments, identity=None):
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made if identity is None else {"id": identity, **made}


def text_part(text):
    return {"type": "text", "text": text}


SYSTEM = message("system", "You are a helpful assistant.")
HELLO = message("user", "Hello, how are you?")
FINE = message("assistant", "I'm fine, thank you! How can I help?")
AGAIN = message("user", "Tell me a joke, please.")
UNICODE = "Grüße, мир, 你好, مرحبا, 👋🏽 \u200b \u00a0 e\u0301 \U0001f9d1\u200d\U0001f4bb ﬁ ß \x7f"
ODD = " \n\t <|im_end|> </s> {{ x }} {% raw %} \\n 'q' \"d\" & < > \r\n  "
TOOL_TALK = [
    message("user", "What's the weather in Paris?"),
    message("assistant", "", tool_calls=[call("get_weather", {"city": "Paris", "days": 3},
                                              "call12345")]),
    message("tool", "{\"temperature\": 21.5, \"sky\": \"clear\"}", tool_call_id="call12345",
            name="get_weather"),
]


def tool_dialogues():
    tools = [WEATHER, SEARCH]
    nested = {"query": "cats\n\"and\" <dogs>", "limit": 2.0, "filters": {
        "tags": ["a", "ü"], "exact": True, "after": None, "empty": {}, "list": []}}
    two_calls = [call("get_weather", {"city": "Rome"}, "callaaaa1"),
                 call("search", nested, "callbbbb2")]
    return [
        {"name": "tools, no call", "messages": [SYSTEM, HELLO], "tools": tools,
         "add_generation_prompt": True},
        {"name": "tool call and result", "messages": [SYSTEM] + TOOL_TALK, "tools": tools,
         "add_generation_prompt": True},
        {"name": "answer after a tool", "messages": TOOL_TALK + [
            message("assistant", "It is 21.5 degrees and clear."), AGAIN], "tools": [WEATHER],
         "add_generation_prompt": True},
        {"name": "two calls, nested arguments", "messages": [
            HELLO, message("assistant", "Let me look.", tool_calls=two_calls),
            message("tool", "22", tool_call_id="callaaaa1", name="get_weather"),
            message("tool", "[]", tool_call_id="callbbbb2", name="search")], "tools": tools,
         "add_generation_prompt": True},
        {"name": "arguments as text", "messages": [
            HELLO, message("assistant", None, tool_calls=[
                call("get_weather", "{\"city\": \"Oslo\"}", "callcccc3")]),
            message("tool", "cold", tool_call_id="callcccc3")], "tools": [WEATHER],
         "add_generation_prompt": True},
        {"name": "content null, no ids", "messages": [
            HELLO, message("assistant", None, tool_calls=[call("ping", {})]),
            message("tool", "pong")], "tools": [EMPTY_TOOL], "add_generation_prompt": True},
        {"name": "result as parts", "messages": [
            HELLO, message("assistant", "", tool_calls=[call("ping", {}, "calldddd4")]),
            message("tool", [text_part("pong"), text_part("pang")], tool_call_id="calldddd4")],
         "tools": [EMPTY_TOOL], "add_generation_prompt": False},
        {"name": "reasoning and a call", "messages": [
            HELLO, message("assistant", "", reasoning_content="I should look that up.",
                           tool_calls=[call("get_weather", {"city": "Bern"}, "calleeee5")]),
            message("tool", {"sky": "grey", "wind": [1, 2.5e-7, 1e16]}, tool_call_id="calleeee5")],
         "tools": tools, "add_generation_prompt": True},
        {"name": "no tools at all", "messages": [HELLO], "tools": [],
         "add_generation_prompt": True},
    ]


def odd_dialogues():
    return [
        {"name": "no messages", "messages": [], "add_generation_prompt": True},
        {"name": "system only", "messages": [SYSTEM], "add_generation_prompt": True},
        {"name": "two users in a row", "messages": [HELLO, AGAIN], "add_generation_prompt": True},
        {"name": "assistant first", "messages": [FINE, HELLO], "add_generation_prompt": True},
        {"name": "system in the middle", "messages": [HELLO, FINE, SYSTEM, AGAIN],
         "add_generation_prompt": True},
        {"name": "unknown role", "messages": [HELLO, message("oracle", "Delphi")],
         "add_generation_prompt": True},
        {"name": "developer", "messages": [message("developer", "Be brief."), HELLO],
         "add_generation_prompt": True},
        {"name": "empty contents", "messages": [message("system", ""), message("user", ""),
                                                message("assistant", ""), message("user", " ")],
         "add_generation_prompt": True},
        {"name": "fields are missing", "messages": [{"role": "user"}, {"content": "who?"}],
         "add_generation_prompt": True},
        {"name": "content is null", "messages": [HELLO, message("assistant", None), AGAIN],
         "add_generation_prompt": True},
        {"name": "content is a number", "messages": [message("user", 42)],
         "add_generation_prompt": True},
        {"name": "odd text", "messages": [message("system", ODD), message("user", ODD),
                                          message("assistant", ODD), message("user", UNICODE)],
         "add_generation_prompt": True},
    ]


def plain_dialogues():
    parts = message("user", [text_part("What is in"), text_part(" this?")])
    image = message("user", [{"type": "image"}, text_part("Describe it.")])
    thought = message("assistant", "<think>\nHm.\n</think>\n\nThe answer is 4.")
    long_text = "The quick brown fox, Zoë, jumps over 12 lazy dogs.\n" * 2_000
    many = [m for i in range(60) for m in (message("user", f"Question {i}?"),
                                           message("assistant", f"Answer {i}. " * 5))]
    return [
        {"name": "one user message", "messages": [HELLO], "add_generation_prompt": True},
        {"name": "with system", "messages": [SYSTEM, HELLO], "add_generation_prompt": True},
        {"name": "several turns", "messages": [SYSTEM, HELLO, FINE, AGAIN],
         "add_generation_prompt": True},
        {"name": "no generation prompt", "messages": [SYSTEM, HELLO, FINE]},
        {"name": "final message goes on", "messages": [HELLO, message("assistant", "I am ")],
         "continue_final_message": True},
        {"name": "final part goes on", "messages": [
            HELLO, message("assistant", [text_part("Once"), text_part("upon")])],
         "continue_final_message": True},
        {"name": "parts", "messages": [message("system", [text_part("Be kind.")]), parts],
         "add_generation_prompt": True},
        {"name": "image part", "messages": [SYSTEM, image], "add_generation_prompt": True},
        {"name": "thoughts in the text", "messages": [HELLO, thought, AGAIN, thought],
         "add_generation_prompt": False},
        {"name": "reasoning field", "messages": [
            HELLO, message("assistant", "4.", reasoning="Two and two."), AGAIN],
         "add_generation_prompt": True},
        {"name": "thinking off", "messages": [SYSTEM, HELLO], "add_generation_prompt": True,
         "variables": {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"}},
        {"name": "thinking on", "messages": [SYSTEM, HELLO, thought, AGAIN],
         "add_generation_prompt": True,
         "variables": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high",
                       "date_string": "01 Jan 2025", "builtin_tools": ["python"]}},
        {"name": "documents", "messages": [SYSTEM, HELLO], "add_generation_prompt": True,
         "documents": [{"title": "A", "text": "About a."}, {"title": "B & C", "text": "\u00fc"}]},
        {"name": "very long", "messages": [SYSTEM, message("user", long_text), FINE,
                                           message("user", "And? " + UNICODE * 50)],
         "add_generation_prompt": True},
        {"name": "very many", "messages": [SYSTEM] + many + [AGAIN],
         "add_generation_prompt": True},
    ]


def dialogues():
    return plain_dialogues() + tool_dialogues() + odd_dialogues()
