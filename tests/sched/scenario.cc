#include "tests/sched/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace spry::testing {
namespace {

std::string Join(const std::vector<std::string>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, " "));
}

const char* FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kError: return "error";
    default: return "";
  }
}

}  // namespace

int ScenarioLine::Number(const std::string& key, int fallback) const {
  const auto found = values.find(key);
  return found == values.end() ? fallback : std::stoi(found->second);
}

std::string ScenarioLine::Text(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? "" : found->second;
}

ScenarioLine ParseScenarioLine(std::string_view line) {
  std::istringstream stream{std::string(line.substr(0, line.find('#')))};
  ScenarioLine parsed;
  stream >> parsed.command;
  for (std::string word; stream >> word;) {
    const size_t equals = word.find('=');
    // In `expect`, words with '=' are compared as they stand.
    if (equals != std::string::npos && parsed.command != "expect") {
      parsed.values[word.substr(0, equals)] = word.substr(equals + 1);
    } else {
      parsed.words.push_back(word);
    }
  }
  return parsed;
}

Status Scenario::Run(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return NotFound(fmt::format("{} can't be read", file.string()));
  Scenario scenario;
  int number = 0;
  for (std::string text; std::getline(stream, text);) {
    ++number;
    const ScenarioLine line = ParseScenarioLine(text);
    if (line.command.empty()) continue;
    if (const Status status = scenario.RunLine(line); !status.ok()) {
      return Internal(fmt::format("{}:{}: {}", file.string(), number, status.message()));
    }
  }
  return {};
}

Status Scenario::RunLine(const ScenarioLine& line) {
  if (line.command == "expect") return Expect(line);
  refused_.clear();
  outcome_.clear();
  preempted_.clear();
  if (line.command == "pool" || line.command == "scheduler") return Create(line);
  if (line.command == "submit") return Submit(line);
  if (line.command == "step") return Step();
  if (line.command == "commit") return simulation_->Commit();
  if (line.command == "cancel") return simulation_->Cancel(named_.at(line.words.at(0)).id);
  if (line.command == "drain") return simulation_->Drain();
  return InvalidArgument(fmt::format("no such command: {}", line.command));
}

Status Scenario::Create(const ScenarioLine& line) {
  if (line.command == "pool") {
    pool_options_ = {.num_blocks = line.Number("blocks", 0),
                     .block_size = line.Number("size", 16),
                     .prefix_caching = line.Text("caching") != "off"};
    return {};
  }
  SchedulerOptions options{.max_rows = line.Number("rows", 0),
                           .max_step_tokens = line.Number("tokens", 0),
                           .max_model_len = line.Number("len", 0),
                           .max_waiting = line.Number("waiting", 100),
                           .max_steps_in_flight = line.Number("depth", 1),
                           .long_prefill_threshold = line.Number("threshold", 0),
                           .max_targets = line.Number("targets", 64)};
  options.max_block_writes = line.Number("writes", FewestBlockWrites(options, pool_options_));
  simulation_ = std::make_unique<Simulation>(pool_options_, options);
  return {};
}

Status Scenario::Submit(const ScenarioLine& line) {
  const std::string& name = line.words.at(0);
  Named named{.id = RequestId(order_.size()), .prompt = {}};
  if (const std::string like = line.Text("like"); !like.empty()) {
    const size_t colon = like.find(':');
    const std::vector<TokenId>& other = named_.at(like.substr(0, colon)).prompt;
    named.prompt.assign(other.begin(), other.begin() + std::stoi(like.substr(colon + 1)));
  }
  for (int i = named.prompt.size(); i < line.Number("prompt", 0); ++i) {
    named.prompt.push_back(TokenId(1000 * (static_cast<int>(order_.size()) + 1) + i));
  }

  RequestSpec spec{
      .id = named.id, .prompt = named.prompt, .params = {}, .cache_salt = line.Text("salt")};
  spec.params.max_outputs = line.Number("max", 1);
  spec.params.num_prompt_logprobs = line.Number("judge", 0) - 1;
  if (const int nan = line.Number("nan", 0); nan > 0) FailAt(nan - 1, spec.params);
  if (const int stop = line.Number("stop", 0); stop > 0) {
    const Expected alone = RunAlone(spec.prompt, spec.params, stop + named.prompt.size());
    spec.params.num_stop_ids = 1;
    spec.params.stop_ids[0] = alone.outputs.at(stop - 1);
  }

  spec.priority = line.Number("priority", 0);
  const Status status = simulation_->Submit(std::move(spec));
  if (status.code() == StatusCode::kInvalidArgument) refused_ = "invalid";
  if (status.code() == StatusCode::kResourceExhausted) refused_ = "full";
  if (!refused_.empty()) return {};
  order_.push_back(name);
  named_[name] = std::move(named);
  return status;
}

Status Scenario::Step() {
  const std::vector<std::string> running = InState(RequestState::kRunning);
  SPRY_ASSIGN_OR_RETURN(const Scheduler::Outcome outcome, simulation_->Step());
  outcome_ = outcome == Scheduler::Outcome::kLaunch    ? "launch"
             : outcome == Scheduler::Outcome::kNothing ? "nothing"
                                                       : "retire";
  // Newest first, which is the order in which they lost their rows.
  for (size_t i = running.size(); i-- > 0;) {
    const Request* request = simulation_->scheduler().Find(named_.at(running[i]).id);
    if (request->state == RequestState::kWaiting) preempted_.push_back(running[i]);
  }
  return {};
}

Status Scenario::Expect(const ScenarioLine& line) {
  const std::string what = line.words.at(0);
  const std::vector<std::string> rest(line.words.begin() + 1, line.words.end());
  const std::string expected = Join(rest);
  const std::map<std::string, std::function<std::string()>> found = {
      {"refused", [&] { return refused_; }},
      {"nothing", [&] { return outcome_ == "nothing" ? "none" : outcome_; }},
      {"retire", [&] { return outcome_ == "retire" ? "none" : outcome_; }},
      {"plan", [&] { return Plan(); }},
      {"joins", [&] { return Joins(); }},
      {"writes", [&] { return Writes(); }},
      {"preempt", [&] { return Join(preempted_); }},
      {"events", [&] { return Events(); }},
      {"free", [&] { return std::to_string(simulation_->pool().num_free()); }},
      {"running", [&] { return Join(InState(RequestState::kRunning)); }},
      {"waiting", [&] { return Join(InState(RequestState::kWaiting)); }},
      {"cached", [&] { return Cached(expected.substr(0, expected.find('='))); }},
  };
  if (!found.contains(what)) return InvalidArgument(fmt::format("no such expectation: {}", what));
  if (const std::string actual = found.at(what)(); actual != expected) {
    return Internal(fmt::format("{} is '{}', expected '{}'", what, actual, expected));
  }
  return {};
}

std::string Scenario::NameOf(RequestId id) const { return order_.at(id.value()); }

std::string Scenario::NameOfRow(RowId row) const {
  for (const std::string& name : InState(RequestState::kRunning)) {
    if (simulation_->scheduler().Find(named_.at(name).id)->row == row) return name;
  }
  return "?";
}

std::vector<std::string> Scenario::InState(RequestState state) const {
  std::vector<std::string> names;
  for (const std::string& name : order_) {
    const Request* request = simulation_->scheduler().Find(named_.at(name).id);
    if (request != nullptr && request->state == state) names.push_back(name);
  }
  return names;
}

std::string Scenario::Plan() const {
  if (outcome_ != "launch") return outcome_;
  std::vector<std::string> rows;
  for (const PlannedRow& row : simulation_->plan().rows) {
    const std::string name = NameOfRow(row.row);
    if (row.decode) {
      rows.push_back(fmt::format("{}:decode", name));
    } else {
      const int judged = row.num_samples - (row.draws ? 1 : 0);
      rows.push_back(fmt::format(
          "{}:prefill={}..{}{}{}", name, row.start, row.start + row.num_tokens,
          judged > 0 ? fmt::format("+judge={}", judged) : "", row.draws ? "+sample" : ""));
    }
  }
  return Join(rows);
}

std::string Scenario::Joins() const {
  std::vector<std::string> names;
  for (const RowJoin& join : simulation_->plan().joins) names.push_back(NameOfRow(join.row));
  return Join(names);
}

std::string Scenario::Writes() const {
  std::map<std::string, int> counts;
  for (const BlockWrite& write : simulation_->plan().block_writes) ++counts[NameOfRow(write.row)];
  std::vector<std::string> words;
  for (const auto& [name, count] : counts) words.push_back(fmt::format("{}={}", name, count));
  return Join(words);
}

std::string Scenario::Events() const {
  std::vector<std::string> words;
  for (const TokenEvent& event : simulation_->events()) {
    std::vector<std::string> parts;
    if (!event.prompt_logprobs.empty()) {
      const int first = event.first_prompt_logprob;
      parts.push_back(fmt::format("judged={}..{}", first, first + event.prompt_logprobs.size()));
    }
    if (event.has_token) parts.push_back("token");
    if (event.finish != FinishReason::kNone) parts.push_back(FinishName(event.finish));
    words.push_back(fmt::format("{}:{}", NameOf(event.request), fmt::join(parts, "+")));
  }
  return Join(words);
}

std::string Scenario::Cached(const std::string& name) const {
  const Request* request = simulation_->scheduler().Find(named_.at(name).id);
  return request == nullptr ? "ended" : fmt::format("{}={}", name, request->num_cached_tokens);
}

}  // namespace spry::testing
