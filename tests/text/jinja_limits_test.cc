// Templates that loop, recurse or print without end are stopped soon, and each refusal names its
// limit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/cpu_time.h"
#include "text/jinja/json_text.h"
#include "text/jinja/template.h"

namespace spry::jinja {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr double kSoonSeconds = 20;
#else
constexpr double kSoonSeconds = 1;
#endif

Result<std::string> Rendered(std::string_view source, const Dict& variables = {}) {
  SPRY_ASSIGN_OR_RETURN(const Template parsed, Template::Parse(source));
  return parsed.Render(variables, std::tm{.tm_mday = 1, .tm_year = 126});
}

std::string Repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Renders, or fails to, and says why; in time.
std::string RefusalOf(const std::string& source) {
  const double begin = ThreadCpuSeconds();
  const Result<std::string> text = Rendered(source);
  const double seconds = ThreadCpuSeconds() - begin;
  EXPECT_LT(seconds, kSoonSeconds) << source.substr(0, 200);
  return text.ok() ? fmt::format("{} bytes", text->size()) : text.status().message();
}

#define EXPECT_REFUSED(source, limit) \
  EXPECT_NE(RefusalOf(source).find(limit), std::string::npos) << RefusalOf(source)

// Almost 16 MiB of text to be hostile with.
constexpr const char* kBig = "{% set b = 'abcdefgh' * 2000000 %}";
constexpr const char* kForever = "{% for i in range(100000) %}{% for j in range(100000) %}";

TEST(JinjaLimits, Steps) {
  const std::string steps = "limit of 8000000 steps";
  EXPECT_REFUSED(std::string(kForever) + "{% endfor %}{% endfor %}", steps);
  for (const char* body :
       {"{% set x = b.strip('abcdefgh') %}", "{% set x = b|upper %}", "{% set x = b|tojson %}",
        "{% set x = b ~ '' == b ~ '' %}", "{{ b|length }}"}) {
    EXPECT_REFUSED(std::string(kBig) + kForever + body + "{% endfor %}{% endfor %}", steps);
  }
  EXPECT_REFUSED("{% set l = [1] * 1000000 %}" + std::string(kForever) +
                     "{% set x = l == l[:] %}{% endfor %}{% endfor %}",
                 steps);
}

TEST(JinjaLimits, SharedPartsCountEachTime) {
  // 10 to the 60th leaves in 60 lists.
  const std::string grow =
      "{% set ns = namespace(a=[0], b=[0]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a] * 10 %}{% set ns.b = [ns.b] * 10 %}{% endfor %}";
  for (const char* use :
       {"{{ ns.a == ns.b }}", "{{ ns.a < ns.b }}", "{{ ns.a }}", "{{ ns.a|tojson }}",
        "{{ ns.a in [ns.b] }}", "{{ [ns.a, ns.b]|sort }}", "{{ [ns.a, ns.b].index(ns.b) }}",
        "{{ ns.a is eq ns.b }}", "{{ '%s' % ns.a }}", "{{ [[ns.a], [ns.b]]|groupby(0) }}"}) {
    EXPECT_REFUSED(grow + use, "the limit of");
  }
  const std::string tuples =
      "{% set ns = namespace(a=(0,)) %}{% for i in range(60) %}"
      "{% set ns.a = (ns.a,) * 10 %}{% endfor %}";
  for (const char* use :
       {"{{ {ns.a: 1} }}", "{{ {1: 1}[ns.a] }}", "{{ ns.a in {1: 1} }}", "{{ {1: 1}.get(ns.a) }}",
        "{{ [ns.a]|unique|list }}", "{{ dict([(ns.a, 1)]) }}"}) {
    EXPECT_REFUSED(tuples + use, "limit of 8000000 steps");
  }
}

TEST(JinjaLimits, Output) {
  EXPECT_REFUSED(std::string(kBig) + "{{ b }}{{ b }}", "the template writes more than");
  EXPECT_REFUSED(std::string(kBig) + "{% set x %}{{ b }}{{ b }}{% endset %}",
                 "the template writes more than");
  EXPECT_REFUSED("{% for i in range(100000) %}" + Repeated("x", 1000) + "{% endfor %}",
                 "the template writes more than");
}

TEST(JinjaLimits, Texts) {
  const std::string texts = "a text of";
  EXPECT_REFUSED("{{ 'x' * 100000000 }}", texts);
  EXPECT_REFUSED("{{ 'x' * 9223372036854775807 }}", texts);
  EXPECT_REFUSED(
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}"
      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      texts);
  EXPECT_REFUSED(
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}",
      texts);
  for (const char* use :
       {"{{ b[:80].replace('a', b) }}", "{{ b.replace('', 'xxx') }}", "{{ [b, b]|join }}",
        "{{ b.join(['', '', '']) }}", "{{ '%s%s' % (b, b) }}", "{{ '{}{}'.format(b, b) }}",
        "{{ [b, b]|string }}", "{{ [b, b]|tojson }}", "{{ ('\\nx' * 9000)|indent(9000) }}",
        "{{ b ~ b }}", "{{ [[1] * 1000]|tojson(indent=b) }}"}) {
    EXPECT_REFUSED(std::string(kBig) + use, "the limit of");
  }
}

TEST(JinjaLimits, ListsRangesAndWidths) {
  EXPECT_REFUSED("{{ [1] * 100000000 }}", "a list of");
  EXPECT_REFUSED("{{ (1, 2) * 9223372036854775807 }}", "a list of");
  EXPECT_REFUSED(std::string(kBig) + "{{ b|list }}", "a list of");
  EXPECT_REFUSED("{{ [1]|batch(100000000, 1)|list }}", "a list of");
  EXPECT_REFUSED("{{ [1]|slice(100000000)|list }}", "a list of");
  EXPECT_REFUSED("{{ range(100001) }}", "range: ");
  EXPECT_REFUSED("{{ range(-9223372036854775807, 9223372036854775807) }}", "range: ");
  for (const char* use :
       {"'%100000000d' % 1", "'%.100000000f' % 1", "'%*d' % (100000000, 1)",
        "'{:100000000}'.format(1)", "'{:.100000000f}'.format(1)", "'{:{}}'.format(1, 100000000)",
        "'x'.center(100000000)", "'x'|center(100000000)", "'x'.ljust(9223372036854775807)",
        "'x'.zfill(100000000)", "'x'|indent(100000000)", "[1]|tojson(indent=100000000)"}) {
    EXPECT_REFUSED(fmt::format("{{{{ {} }}}}", use), "a width or precision of");
  }
  EXPECT_REFUSED("{{ 'x'.strip('ab' * 1000) }}", "bytes to strip");
  EXPECT_REFUSED("{{ strftime_now('%d' * 1000) }}", "strftime_now: a format of");
}

TEST(JinjaLimits, Integers) {
  for (const char* use :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "4611686018427387904 * 2",
        "10 ** 19", "2 ** 1000000000", "9223372036854775808", "0xFFFFFFFFFFFFFFFFF", "1e300|int",
        "(-9223372036854775807 - 1)|abs", "-(-9223372036854775807 - 1)",
        "(-9223372036854775807 - 1) // -1"}) {
    EXPECT_REFUSED(fmt::format("{{{{ {} }}}}", use), "64 bits");
  }
}

TEST(JinjaLimits, Recursion) {
  EXPECT_REFUSED("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                 "macros call each other deeper");
  EXPECT_REFUSED(
      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}"
      "{{ f() }}",
      "macros call each other deeper");
  EXPECT_REFUSED("{% macro f(x=f()) %}{% endmacro %}{{ f() }}", "macros call each other deeper");
  EXPECT_REFUSED("{% macro f() %}{% call f() %}{% endcall %}{{ caller }}{% endmacro %}{{ f() }}",
                 "macros call each other deeper");
  EXPECT_REFUSED("{% set l = [1] %}{% for i in l recursive %}{{ loop(l) }}{% endfor %}",
                 "goes deeper than");
  // A macro whose calls stand deep in an expression.
  const std::string deep = Repeated("(1 + ", 90) + "f()|int" + Repeated(")", 90);
  EXPECT_REFUSED("{% macro f() %}{{ " + deep + " }}{% endmacro %}{{ f() }}", "goes deeper than");
  // Two branches each: stopped by steps before it has gone through 2 to the 90th calls.
  EXPECT_REFUSED(
      "{% macro f(k) %}{% if k %}{{ f(k - 1) }}{{ f(k - 1) }}{% endif %}{% endmacro %}"
      "{{ f(90) }}",
      "limit of 8000000 steps");
}

TEST(JinjaLimits, DeepValues) {
  const std::string grow = "{% set ns = namespace(x=1) %}{% for i in range(100000) %}";
  for (const char* body :
       {"{% set ns.x = [ns.x] %}", "{% set ns.x = (ns.x,) %}", "{% set ns.x = {'a': ns.x} %}",
        "{% set ns.x = dict(a=ns.x) %}", "{% set ns.x = [ns.x]|map('default') %}",
        "{% set ns.x = [[ns.x].index] %}", "{% set ns.x = joiner(ns.x) %}",
        "{% set ns.x = [[ns.x, 1]]|groupby(1) %}", "{% set ns.x = [ns.x]|batch(1) %}"}) {
    EXPECT_REFUSED(grow + body + "{% endfor %}", "a value nests deeper");
  }
  // Namespaces and loops may hold themselves: nothing leaks and nothing overflows.
  EXPECT_EQ(RefusalOf("{% set ns = namespace() %}{% for i in range(90000) %}"
                      "{% set ns.x = namespace(up=ns.x) %}{% endfor %}ok"),
            "2 bytes");
  EXPECT_EQ(RefusalOf("{% set ns = namespace(x=1) %}{% for i in range(90000) %}"
                      "{% for j in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}ok"),
            "2 bytes");
  EXPECT_EQ(RefusalOf("{% set ns = namespace() %}{% for i in [1] %}{% set ns.f = loop.changed %}"
                      "{{ loop.changed(loop.changed) }}{% endfor %}"),
            "4 bytes");
  EXPECT_REFUSED("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}", "a value nests deeper");
}

TEST(JinjaLimits, DeepTemplates) {
  const std::string nesting = "nests deeper than";
  for (const int count : {1000, 60'000}) {
    for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{
             {"(", ")"},    {"[", "]"},           {"{1:", "}"},   {"-", ""},
             {"not ", ""},  {"f(", ")"},          {"a[", "]"},    {"", ".a"},
             {"", "[0]"},   {"", "|e"},           {"", "()"},     {"", " + 1"},
             {"", " * 1"},  {"", " ** 1"},        {"", " and 1"}, {"", " or 1"},
             {"", " if 1"}, {"1 if 1 else ", ""}, {"+-", ""},     {"1|default(", ")"}}) {
      const std::string middle = open == "{1:" ? "1" : "a";
      EXPECT_REFUSED("{{ " + Repeated(open, count) + middle + Repeated(close, count) + " }}",
                     nesting);
      EXPECT_NE(RefusalOf("{{ " + Repeated(open, count)), "0 bytes");
    }
    if (count > 10'000) continue;  // the template would be too large
    for (const char* block :
         {"{% if 1 %}", "{% for i in [1] %}", "{% set x %}", "{% filter upper %}", "{% with %}",
          "{% macro f() %}", "{% call f() %}", "{% generation %}", "{% if 1 %}{% else %}"}) {
      EXPECT_REFUSED(Repeated(block, count), nesting);
    }
    EXPECT_REFUSED("{% for " + Repeated("(", count) + "a" + Repeated(")", count) + " in [] %}",
                   nesting);
  }
  EXPECT_REFUSED("{{ " + std::string(500'000, '(') + std::string(500'000, ')') + "}}", nesting);
  EXPECT_REFUSED(std::string((1 << 20) + 1, 'x'), "the chat template has");
  // What is long but not deep is fine.
  EXPECT_EQ(RefusalOf("{{ 'x'" + Repeated(" ~ 'x'", 10'000) + " }}"), "10001 bytes");
  EXPECT_EQ(RefusalOf("{{ [" + Repeated("1, ", 50'000) + "]|length }}"), "5 bytes");
  EXPECT_EQ(RefusalOf("{% if 0 %}" + Repeated("{% elif 0 %}", 20'000) + "{% endif %}"), "0 bytes");
}

TEST(JinjaLimits, AnErrorIsShortAndOfOneLine) {
  const Result<std::string> text = Rendered("\n\n{{ raise_exception('a\nb' ~ 'c' * 100000) }}");
  ASSERT_FALSE(text.ok());
  EXPECT_TRUE(text.status().message().starts_with("chat template, line 3: ")) << "its line";
  EXPECT_NE(text.status().message().find(": a bccc"), std::string::npos);
  EXPECT_LT(text.status().message().size(), 1200u);
}

TEST(JinjaSandbox, NothingOfPythonIsInReach) {
  for (const char* use :
       {"''.__class__", "''['__class__']", "''|attr('__class__')", "{}.__class__.__mro__",
        "().__class__.__base__.__subclasses__()", "range.__globals__", "namespace.__init__",
        "cycler.__init__.__globals__", "lipsum.__globals__", "'{0.__class__}'.format(1)",
        "'{0[__class__]}'.format('')", "self.__init__"}) {
    const Result<std::string> text = Rendered(fmt::format("{{{{ {} }}}}", use));
    EXPECT_EQ(text.ok() ? *text : "", "") << use;
  }
}

}  // namespace
}  // namespace spry::jinja
