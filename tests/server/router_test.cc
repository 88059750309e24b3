#include "server/router.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "server/foreign_paths.h"
#include "tests/server_rig/server_rig.h"

namespace spry {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

HttpHandler Says(const std::string& name) {
  return [name](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Send({.body = name + ":" + exchange->request().parameter});
  };
}

class RouterTest : public ::testing::Test {
 protected:
  void Serve(RouterOptions options = {}) {
    router_ = std::make_unique<Router>(std::move(options));
    router_->Add("GET", "/v1/models", Says("models"));
    router_->Add("GET", "/v1/models/{id}", Says("model"));
    router_->Add("GET", "/v1/models/special", Says("special"));
    router_->Add("POST", "/v1/chat/completions", Says("chat"));
    router_->Add("POST", "/tokenize", Says("tokenize"));
    router_->Add("GET", "/health", Says("health"));
    router_->Add("GET", "/", Says("page"));
    router_->Add("GET", "/stream", [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->StartStream({});
      exchange->EndStream();
    });
    rig_ = std::make_unique<ServerRig>(
        HttpServerOptions{},
        [this](std::shared_ptr<HttpExchange> exchange) { router_->Handle(std::move(exchange)); });
    client_ = std::make_unique<Client>(rig_->port());
  }

  Answer Ask(std::string_view method, std::string_view path, std::string_view fields = "") {
    client_->Send(RequestText(method, path, "", fields));
    return client_->ReadAnswer(/*has_body=*/method != "HEAD");
  }

  std::unique_ptr<Router> router_;
  std::unique_ptr<ServerRig> rig_;
  std::unique_ptr<Client> client_;
};

TEST_F(RouterTest, Paths) {
  Serve();
  EXPECT_EQ(Ask("GET", "/v1/models").body, "models:");
  EXPECT_EQ(Ask("GET", "/v1/models?limit=2").body, "models:");
  EXPECT_EQ(Ask("GET", "/v1/models/tiny").body, "model:tiny");
  EXPECT_EQ(Ask("GET", "/v1/models/org/tiny-1.0").body, "model:org/tiny-1.0");
  EXPECT_EQ(Ask("GET", "/v1/models/org%2Ftiny%20%C3%a9%").body, "model:org/tiny \xc3\xa9%");
  EXPECT_EQ(Ask("GET", "/v1/models/special").body, "special:");
  EXPECT_EQ(Ask("GET", "/").body, "page:");
  EXPECT_EQ(Ask("HEAD", "/health").Field("Content-Length"), "7");
}

TEST_F(RouterTest, UnknownPathsAndMethods) {
  Serve();
  for (const char* const path : {"/nothing", "/v1/models/", "/v1", "*", "//", "/health/"}) {
    const Answer answer = Ask("GET", path);
    EXPECT_EQ(answer.status, 404);
    EXPECT_EQ(answer.body, fmt::format(R"({{"error":{{"message":"there is no {} here",)"
                                       R"("type":"invalid_request_error","param":null,)"
                                       R"("code":null}}}})",
                                       path));
  }
  // What a client sent does not break the JSON.
  EXPECT_THAT(Ask("GET", "/%22%5C%0a%ff").body, HasSubstr("no /\\\"\\\\\\n\uFFFD here"));
  const Answer post = Ask("POST", "/v1/models");
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.Field("Allow"), "GET, HEAD");
  EXPECT_THAT(post.body, HasSubstr("\"/v1/models does not take POST; it takes GET, HEAD\""));
  EXPECT_EQ(Ask("GET", "/v1/chat/completions").Field("Allow"), "POST");
  EXPECT_EQ(Ask("OPTIONS", "/health").status, 405);
}

TEST_F(RouterTest, PathsOfOtherServersAreToldWhatToUse) {
  Serve();
  const auto message = [&](const char* method, const char* path) {
    const Answer answer = Ask(method, path);
    EXPECT_EQ(answer.status, 404) << path;
    return answer.body;
  };
  EXPECT_THAT(message("GET", "/props"),
              HasSubstr("\"there is no /props here; /server_info says what is set\""));
  EXPECT_THAT(message("POST", "/completion"), HasSubstr("here; use /v1/completions\""));
  EXPECT_THAT(message("POST", "/v1/responses"), HasSubstr("here; use /v1/chat/completions\""));
  EXPECT_THAT(message("POST", "/v1/embeddings"), HasSubstr("here; it is not written yet\""));
  EXPECT_THAT(message("POST", "/v1/audio/speech"), HasSubstr("here; it is not written yet\""));
  EXPECT_THAT(message("GET", "/props/x"), HasSubstr("no /props/x here\""));
}

TEST_F(RouterTest, TheDocumentHasThePathsOfOtherServers) {
  std::ifstream file(SPRY_SOURCE_DIR "/docs/server.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  for (const ForeignPath& foreign : kForeignPaths) {
    EXPECT_THAT(document, HasSubstr("`" + std::string(foreign.path))) << foreign.path;
  }
}

TEST_F(RouterTest, ApiKeys) {
  Serve({.api_keys = {"first-key", "second"}});
  for (const char* const path :
       {"/v1/models", "/v1/models/x", "/v1/nothing", "/tokenize", "/detokenize",
        "/reset_prefix_cache", "/server_info", "/%761/models", "/v%31/models"}) {
    for (const char* const fields :
         {"", "Authorization: Bearer wrong\r\n", "Authorization: Bearer \r\n",
          "Authorization: Bearer\r\n", "Authorization: first-key\r\n",
          "Authorization: Basic first-key\r\n", "Authorization: Bearer first-ke\r\n",
          "Authorization: Bearer first-key2\r\n", "Authorization: Bearer first-key second\r\n"}) {
      const Answer answer = Ask("GET", path, fields);
      EXPECT_EQ(answer.status, 401) << path << " " << fields;
      EXPECT_EQ(answer.Field("WWW-Authenticate"), "Bearer");
      EXPECT_THAT(answer.body, HasSubstr(R"("param":null,"code":"invalid_api_key")"));
    }
  }
  for (const char* const bare : {"first-key", "Basic first-key", "Bearer"}) {
    EXPECT_THAT(Ask("GET", "/v1/models", fmt::format("Authorization: {}\r\n", bare)).body,
                HasSubstr(R"(\"Bearer \" is missing before the API key)"))
        << bare;
  }
  EXPECT_THAT(Ask("GET", "/v1/models", "Authorization: Bearer x\r\n").body,
              HasSubstr("is not one of this server's"));
  EXPECT_EQ(Ask("GET", "/v1/models", "Authorization: Bearer first-key\r\n").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/models", "authorization: bearer second\r\n").status, 200);
  EXPECT_EQ(Ask("GET", "/v1/nothing", "Authorization: Bearer second\r\n").status, 404);
  EXPECT_EQ(Ask("GET", "/health").status, 200);
  EXPECT_EQ(Ask("GET", "/").status, 200);
  EXPECT_EQ(Ask("GET", "/nothing").status, 404);
}

constexpr std::string_view kPreflight =
    "Origin: http://page\r\nAccess-Control-Request-Method: POST\r\n"
    "Access-Control-Request-Headers: authorization, content-type\r\n";

TEST_F(RouterTest, CorsForEveryOrigin) {
  Serve({.api_keys = {"key"}});
  const Answer preflight = Ask("OPTIONS", "/v1/chat/completions", kPreflight);
  EXPECT_EQ(preflight.status, 200);
  EXPECT_EQ(preflight.Field("Access-Control-Allow-Origin"), "*");
  EXPECT_THAT(preflight.Field("Access-Control-Allow-Methods"), HasSubstr("POST"));
  EXPECT_EQ(preflight.Field("Access-Control-Allow-Headers"), "authorization, content-type");
  const Answer refused = Ask("GET", "/v1/models", "Origin: http://page\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.Field("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(Ask("GET", "/stream", "Origin: a\r\n").Field("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(Ask("GET", "/health").Field("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(Ask("GET", "/health").Field("Vary"), "");
}

TEST_F(RouterTest, CorsForListedOrigins) {
  Serve({.allowed_origins = {"http://page", "http://other"}});
  const Answer preflight = Ask("OPTIONS", "/v1/chat/completions", kPreflight);
  EXPECT_EQ(preflight.status, 200);
  EXPECT_EQ(preflight.Field("Access-Control-Allow-Origin"), "http://page");
  EXPECT_EQ(preflight.Field("Vary"), "Origin");
  const Answer other = Ask("GET", "/health", "Origin: http://other\r\n");
  EXPECT_EQ(other.Field("Access-Control-Allow-Origin"), "http://other");
  const Answer strange = Ask("GET", "/health", "Origin: http://evil\r\n");
  EXPECT_EQ(strange.status, 200);
  EXPECT_EQ(strange.Field("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(strange.Field("Vary"), "Origin");
  EXPECT_EQ(
      Ask("OPTIONS", "/", "Origin: http://evil\r\nAccess-Control-Request-Method: GET\r\n").status,
      400);
}

TEST_F(RouterTest, RequestIdsAreEchoedOnEveryAnswer) {
  Serve({.api_keys = {"key"}});
  for (const char* const path : {"/health", "/nothing", "/v1/models", "/stream"}) {
    EXPECT_EQ(Ask("GET", path, "X-Request-Id: abc\r\n").Field("X-Request-Id"), "abc");
  }
  EXPECT_EQ(Ask("POST", "/health", "X-Request-Id: abc\r\n").Field("X-Request-Id"), "abc");
}

}  // namespace
}  // namespace spry
