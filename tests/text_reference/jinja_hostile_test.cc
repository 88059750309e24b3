// Every operation that can be made expensive, without end, on as much as a template may have: each
// is stopped soon, with its limit named.
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "tests/support/cpu_time.h"
#include "text/jinja/template.h"

namespace spry::jinja {
namespace {

constexpr double kSoonSeconds = 1;
constexpr const char* kBig = "{% set b = 'abcdefgh' * 2000000 %}";
constexpr const char* kMany = "{% set l = [1] * 1000000 %}";

void ExpectStopped(const std::string& start, const std::string& body) {
  const auto parsed =
      Template::Parse(start + "{% for i in range(100000) %}{% for j in range(100000) %}" + body +
                      "{% endfor %}{% endfor %}");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const double begin = ThreadCpuSeconds();
  const auto text = parsed->Render({}, std::tm{});
  EXPECT_LT(ThreadCpuSeconds() - begin, kSoonSeconds) << body;
  ASSERT_FALSE(text.ok()) << body;
  EXPECT_NE(text.status().message().find(" limit of "), std::string::npos)
      << body << ": " << text.status().message();
}

TEST(JinjaHostile, WorkOnALongText) {
  for (const char* body : {"{% set x = b.strip('abcdefgh') %}",
                           "{% set x = b|upper %}",
                           "{% set x = b.lower() %}",
                           "{% set x = b.title() %}",
                           "{% set x = b[1:] %}",
                           "{% set x = b[::2]|length %}",
                           "{% set x = b.split('a')|length %}",
                           "{% set x = b.replace('a', 'b') %}",
                           "{% set x = b.find('zz') %}",
                           "{% set x = b.rfind('zz') %}",
                           "{% set x = 'zz' in b %}",
                           "{% set x = b.count('h') %}",
                           "{% set x = b|tojson %}",
                           "{% set x = [b]|string %}",
                           "{% set x = b|escape %}",
                           "{% set x = b|urlencode|length %}",
                           "{% set x = b|wordcount %}",
                           "{% set x = b|reverse %}",
                           "{% set x = b|int %}",
                           "{% set x = b.isalpha() %}",
                           "{% set x = b.splitlines() %}",
                           "{% set x = b ~ '' == b ~ '' %}",
                           "{% set x = b|indent %}",
                           "{% set x = b|trim('abcdefgh') %}",
                           "{% set x = '%s'|format(b) %}",
                           "{% set x = '{:.5}'.format(b) %}",
                           "{% set x = b is lower %}",
                           "{% set x = b|title %}",
                           "{% set x = b.startswith(b) %}",
                           "{% set x = b.center(5) %}",
                           "{% set x = b|string %}",
                           "{% set x = (b ~ '') is sameas (b ~ '') %}",
                           "{% set x = {b: 1}[b ~ ''] %}",
                           "{% set x = b.rsplit('a', 1) %}",
                           "{% set x = b.partition('zz') %}",
                           "{% set x = b|truncate(5) %}",
                           "{% set x = b.zfill(3)|length %}",
                           "{{ b|length }}"}) {
    ExpectStopped(kBig, body);
  }
}

TEST(JinjaHostile, WorkOnALongList) {
  for (const char* body :
       {"{% set x = l == l[:] %}", "{% set x = 2 in l %}", "{% set x = l|sort %}",
        "{% set x = l|unique|list %}", "{% set x = l|sum %}", "{% set x = l|join %}",
        "{% set x = l|map('string')|list %}", "{% set x = l|select('odd')|list %}",
        "{% set x = l|batch(2)|list %}", "{% set x = l + [] %}", "{% set x = l|reverse|list %}",
        "{% set x = l|max %}", "{% set x = l|tojson %}", "{% set x = l.count(2) %}",
        "{% set x = l|first %}", "{% set a, c = l, l %}", "{% set x = dict(a=l) == dict(a=l[:]) %}",
        "{% set x = l < l[:] %}"}) {
    ExpectStopped(kMany, body);
  }
}

}  // namespace
}  // namespace spry::jinja
