// Ids for requests whose client gave none: 32 hexadecimal digits, as vLLM's.
#pragma once

#include <random>
#include <string>

namespace spry {

class RequestIds {
 public:
  RequestIds() : generator_(std::random_device{}()) {}
  std::string Next();

 private:
  std::mt19937_64 generator_;
};

}  // namespace spry
