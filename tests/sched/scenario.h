// Runs a scenario of tests/cases/sched (its README.md has the language).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tests/sched/simulation.h"

namespace spry::testing {

// One line: a command, plain words and key=value pairs.
struct ScenarioLine {
  std::string command;
  std::vector<std::string> words;
  std::map<std::string, std::string> values;

  int Number(const std::string& key, int fallback) const;
  std::string Text(const std::string& key) const;
};
ScenarioLine ParseScenarioLine(std::string_view line);

class Scenario {
 public:
  // OK, or the first line that failed as "file:line: what was found and what was expected".
  static Status Run(const std::filesystem::path& file);

 private:
  struct Named {
    RequestId id;
    std::vector<TokenId> prompt;
  };

  Status RunLine(const ScenarioLine& line);
  Status Create(const ScenarioLine& line);
  Status Submit(const ScenarioLine& line);
  Status Step();
  Status Expect(const ScenarioLine& line);

  std::string NameOf(RequestId id) const;
  std::string NameOfRow(RowId row) const;
  std::vector<std::string> InState(RequestState state) const;
  std::string Plan() const;
  std::string Joins() const;
  std::string Writes() const;
  std::string Events() const;
  std::string Cached(const std::string& name) const;

  BlockPoolOptions pool_options_;
  std::unique_ptr<Simulation> simulation_;
  std::map<std::string, Named> named_;
  std::vector<std::string> order_;  // names in order of submission
  // Of the last command: what `expect` compares with.
  std::string refused_;
  std::string outcome_;
  std::vector<std::string> preempted_;
};

}  // namespace spry::testing
