// JSON text to simdjson's document, with whole numbers of any length: transformers writes a
// model_max_length of 1000000000000000019884624838656 where it knows none, and simdjson takes no
// more than 64 bits. Longer ones become doubles.
#pragma once

#include <simdjson.h>

#include <string_view>

namespace spry {

// What is read lives in `parser`.
simdjson::error_code ParseJson(std::string_view text, simdjson::dom::parser& parser,
                               simdjson::dom::element& root);

}  // namespace spry
