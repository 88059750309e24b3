// Reads the fields of a JSON object that a client sent: typed and checked for range. The first
// thing wrong is kept, with the name of its field; what is read after it does not matter any more.
// A field that is null counts as absent. Of a name given twice the last one counts, as in Python.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "server/api_error.h"

namespace spry {

inline constexpr int kMaxJsonDepth = 32;

// 415 for a body that is no JSON.
std::optional<ApiError> CheckJsonType(std::string_view content_type);

// The object in the body of a request.
struct JsonBody {
  std::optional<ApiError> error;
  boost::json::object object;  // without an error
};
// Throws when memory is short.
JsonBody ParseJsonBody(const HttpRequest& request);

struct IntegerRange {
  int64_t low = 0;
  int64_t high = 0;
};

// Ends of a range are in it unless they are marked open. Devices compute with floats.
struct NumberRange {
  double low = 0;
  double high = std::numeric_limits<float>::max();
  bool low_open = false;
};

class RequestFields {
 public:
  using Value = boost::json::value;

  // `object` must outlive this. `path` is put before the names of fields: "stream_options.".
  explicit RequestFields(const boost::json::object& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  // Each gives nothing when the field is absent, null, or wrong (see error()).
  const Value* Find(std::string_view name);
  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Integer(std::string_view name, IntegerRange range);
  // Any integer of 64 bits, with or without a sign.
  std::optional<uint64_t> Bits(std::string_view name);
  std::optional<double> Number(std::string_view name, NumberRange range);
  std::optional<std::string> String(std::string_view name);
  const boost::json::object* Object(std::string_view name);
  const boost::json::array* Array(std::string_view name);
  // A string, or a list of strings.
  std::optional<std::vector<std::string>> Strings(std::string_view name);
  std::optional<std::vector<TokenId>> TokenIds(std::string_view name, int64_t vocab_size);

  // The names here that the server knows and need not read.
  void Know(std::string_view name) { known_.push_back(name); }
  // Names that nobody has read.
  std::vector<std::string> Unknown() const;

  // Keeps the first.
  void Fail(std::string_view name, std::string message);
  void Fail(ApiError error);
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  void WrongType(std::string_view name, const Value& found, std::string_view expected);

  const boost::json::object& object_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::optional<ApiError> error_;
};

// `value` as a whole number; 3.0 is one, 3.5, true and "3" are none.
std::optional<int64_t> ToInteger(const boost::json::value& value);

// Reads a list of ids into `ids`; otherwise says what is wrong with entry i: "prompt[3] is -1; ids
// of this model go from 0 to 319".
std::optional<ApiError> ReadTokenIds(const boost::json::array& list, std::string_view name,
                                     int64_t vocab_size, std::vector<TokenId>& ids);

// How an error calls a value: "a list", "the string \"abc\"", "-1".
std::string Described(const boost::json::value& value);

// A name that a client sent, in quotes and cut where it is long.
std::string Quoted(std::string_view text);

// Overwrites `to` when there is something.
template <typename To, typename From>
void Assign(To& to, std::optional<From> from) {
  if (from) to = static_cast<To>(*std::move(from));
}

}  // namespace spry
