// What turns a piece of text into tokens: one class for each kind of vocabulary.
// Immutable; threads may share one, each with its own Scratch.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace spry {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Memory that Encode uses again from call to call.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };
  virtual std::unique_ptr<Scratch> NewScratch() const = 0;

  // Appends the ids of `word`, one piece of the text: valid UTF-8, as normalised and cut.
  // `scratch` is one of NewScratch of this very model.
  virtual void Encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const = 0;
};

}  // namespace spry
