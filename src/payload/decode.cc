// decode_header(): reads a header that a peer sent, in one pass and without an object tree in between. Runs
// on the receiver's loop thread; owns nothing beyond the call. The format is described in encode.cc. Every
// element is checked where it arrives: against what may stand there, and against the bounds in limits.h.
#include <algorithm>
#include <msgpack.hpp>
#include <optional>
#include <string>

#include "payload/codec.h"
#include "payload/dict_keys.h"
#include "payload/format.h"
#include "payload/layout.h"
#include "payload/limits.h"
#include "payload/utf8.h"

namespace stagewire {
namespace {

/// The most elements that are reserved for on the word of an announced count. Larger containers grow as
/// their elements arrive.
constexpr std::size_t kReserve = 64;

/// Where the next element of an open array belongs.
enum class In : std::uint8_t { header, untagged, list, tuple, dict, tensor, table, entry, shape };

/// An array that has begun and not ended.
struct Frame {
  In in;
  std::uint32_t announced;  ///< elements the array will have
  std::uint32_t seen = 0;   ///< elements that have arrived, the tag included
  std::vector<Value> items;
  Dict dict;

  explicit Frame(In where, std::uint32_t count) : in(where), announced(count) {}
  bool expects_key() const noexcept { return in == In::dict && seen % 2 == 1; }
};

/// The events of msgpack's parser; each returns false, with `error_` set, to stop it.
class HeaderVisitor : public msgpack::null_visitor {
 public:
  HeaderVisitor(std::size_t header_size, DecodedHeader& out) : header_size_(header_size), out_(out) {
    stack_.reserve(8);
  }

  bool visit_nil() { return scalar(Value()); }
  bool visit_boolean(bool v) { return scalar(Value(v)); }
  bool visit_float64(double v) { return scalar(Value(v)); }
  bool visit_positive_integer(std::uint64_t v);
  bool visit_negative_integer(std::int64_t v);
  bool visit_str(const char* data, std::uint32_t size);
  bool visit_bin(const char* data, std::uint32_t size);
  bool visit_float32(float) { return fail("a float32", "floats are float64"); }
  bool visit_ext(const char*, std::uint32_t) { return fail("a msgpack extension", "there are none"); }
  bool start_map(std::uint32_t) { return fail("a msgpack map", "dicts are tagged arrays"); }
  bool start_array(std::uint32_t count);
  bool end_array();

  void parse_error(std::size_t, std::size_t at) {
    error_.emplace(ErrorKind::protocol, "payload header: not msgpack at byte " + std::to_string(at));
  }
  void insufficient_bytes(std::size_t, std::size_t at) {
    error_.emplace(ErrorKind::protocol,
                   "payload header: cut short at byte " + std::to_string(at) + ", inside " + place());
  }

  std::optional<Error>& error() noexcept { return error_; }
  /// Checks what only the whole header can tell.
  bool finish();

 private:
  bool fail(const std::string& got, const std::string& expected);
  std::string place() const;
  bool count_node();
  bool key(DictKey key);
  bool scalar(Value value);
  bool deliver(Value value);
  bool tag(std::uint64_t number);
  bool close_tensor_ref();
  bool close_entry();

  std::size_t header_size_;
  DecodedHeader& out_;
  std::vector<Frame> stack_;
  std::size_t nodes_ = 0;
  std::uint64_t ref_ = 0;
  std::uint64_t refs_end_ = 0;  // one above the largest tensor index that the tree names
  Segment entry_;
  BodyLayout layout_;
  std::optional<Error> error_;
};

std::string HeaderVisitor::place() const {
  if (stack_.empty()) return "the header";
  switch (stack_.back().in) {
    case In::header:
      return "the header's element " + std::to_string(stack_.back().seen);
    case In::untagged:
    case In::list:
    case In::tuple:
    case In::dict:
      return "the tree at depth " + std::to_string(stack_.size() - 1);
    case In::tensor:
      return "a tensor reference";
    case In::table:
    case In::entry:
    case In::shape:
      break;
  }
  return "the tensor table's entry " + std::to_string(out_.segments.size());
}

bool HeaderVisitor::fail(const std::string& got, const std::string& expected) {
  error_.emplace(ErrorKind::protocol, "payload header: " + got + " in " + place() + "; " + expected);
  return false;
}

bool HeaderVisitor::count_node() {
  if (++nodes_ <= kMaxPayloadNodes) return true;
  return fail("too many values and keys", "expected at most " + std::to_string(kMaxPayloadNodes));
}

/// Hands a finished node to the array it stands in, or makes it the root.
bool HeaderVisitor::deliver(Value value) {
  Frame& top = stack_.back();
  switch (top.in) {
    case In::list:
    case In::tuple:
      top.items.push_back(std::move(value));
      break;
    case In::dict:
      top.dict.items.back().second = std::move(value);
      break;
    case In::header:
    case In::untagged:
    case In::tensor:
    case In::table:
    case In::entry:
    case In::shape:
      out_.root = std::move(value);  // In::header: scalar() and start_array() let nothing else come here
      break;
  }
  ++top.seen;
  return true;
}

bool HeaderVisitor::scalar(Value value) {
  if (stack_.empty()) return fail("a scalar", "expected an array of 3");
  const Frame& top = stack_.back();
  switch (top.in) {
    case In::header:
      if (top.seen == 0) return fail("a version that is no integer", "expected 1");
      if (top.seen == 2) return fail("a tensor table that is no array", "expected an array");
      break;
    case In::list:
    case In::tuple:
      break;
    case In::dict:
      if (top.expects_key()) return fail("a dict key of another type", "expected text, an integer or bytes");
      break;
    case In::untagged:
      return fail("an array without a tag", "expected an integer from 0 to 3 first");
    case In::tensor:
      return fail("an index that is no integer", "expected a tensor's index");
    case In::table:
      return fail("an entry that is no array", "expected [dtype, [dim, …]]");
    case In::entry:
      return fail("another type",
                  top.seen == 0 ? "expected a dtype number" : "expected an array of dimensions");
    case In::shape:
      return fail("a dimension of another type", "expected an integer");
  }
  return count_node() && deliver(std::move(value));
}

bool HeaderVisitor::key(DictKey key) {
  if (!count_node()) return false;
  Frame& top = stack_.back();
  top.dict.items.emplace_back(std::move(key), Value());
  ++top.seen;
  return true;
}

bool HeaderVisitor::tag(std::uint64_t number) {
  Frame& top = stack_.back();
  if (number >= kNodeTagCount) {
    return fail("the tag " + std::to_string(number), "expected an integer from 0 to 3");
  }
  top.seen = 1;
  const std::size_t rest = top.announced - 1;
  if (static_cast<NodeTag>(number) == NodeTag::tensor) {
    if (rest != 1) return fail("a tensor reference of " + std::to_string(rest) + " elements", "expected 1");
    top.in = In::tensor;
    return true;
  }
  // The header array and this one are on the stack, and neither the former nor tensor references count.
  if (stack_.size() - 1 > kMaxPayloadDepth) {
    return fail("a container", "expected at most " + std::to_string(kMaxPayloadDepth) + " inside each other");
  }
  switch (static_cast<NodeTag>(number)) {
    case NodeTag::list:
      top.in = In::list;
      top.items.reserve(std::min(rest, kReserve));
      return true;
    case NodeTag::tuple:
      top.in = In::tuple;
      top.items.reserve(std::min(rest, kReserve));
      return true;
    case NodeTag::dict:
      if (rest % 2 != 0) return fail("a dict key without a value", "expected pairs");
      top.in = In::dict;
      top.dict.items.reserve(std::min(rest / 2, kReserve));
      return true;
    case NodeTag::tensor:
      break;
  }
  return true;
}

bool HeaderVisitor::visit_positive_integer(std::uint64_t v) {
  constexpr auto kInt64Max = static_cast<std::uint64_t>(INT64_MAX);
  if (!stack_.empty()) {
    Frame& top = stack_.back();
    switch (top.in) {
      case In::untagged:
        return tag(v);
      case In::tensor:
        if (v >= kMaxTensors) {
          return fail("the index " + std::to_string(v), "expected less than " + std::to_string(kMaxTensors));
        }
        ref_ = v;
        ++top.seen;
        return true;
      case In::entry:
        if (top.seen == 0) {
          const auto dtype = dtype_from_wire(v);
          if (!dtype) {
            return fail("the dtype " + std::to_string(v),
                        "expected less than " + std::to_string(kDTypeCount));
          }
          entry_.dtype = *dtype;
          ++top.seen;
          return true;
        }
        break;
      case In::shape:
        if (v > kInt64Max) return fail("the dimension " + std::to_string(v), "expected at most 2^63-1");
        entry_.shape.push_back(static_cast<std::int64_t>(v));
        ++top.seen;
        return true;
      case In::dict:
        if (top.expects_key()) {
          if (v > kInt64Max) return fail("the dict key " + std::to_string(v), "expected at most 2^63-1");
          return key(DictKey(static_cast<std::int64_t>(v)));
        }
        break;
      case In::header:
        if (top.seen == 0) {
          if (v != kHeaderVersion) {
            return fail("the format version " + std::to_string(v),
                        "this build reads version " + std::to_string(kHeaderVersion));
          }
          ++top.seen;
          return true;
        }
        break;
      case In::list:
      case In::tuple:
      case In::table:
        break;
    }
  }
  return scalar(v <= kInt64Max ? Value(static_cast<std::int64_t>(v)) : Value(v));
}

bool HeaderVisitor::visit_negative_integer(std::int64_t v) {
  // msgpack's signed encodings can carry positive numbers; they mean the same.
  if (v >= 0) return visit_positive_integer(static_cast<std::uint64_t>(v));
  if (!stack_.empty()) {
    if (stack_.back().expects_key()) return key(DictKey(v));
    if (stack_.back().in == In::shape) {
      return fail("the dimension " + std::to_string(v), "expected 0 or more");
    }
  }
  return scalar(Value(v));
}

bool HeaderVisitor::visit_str(const char* data, std::uint32_t size) {
  const std::string_view text(data, size);
  if (!is_utf8(text)) return fail("text that is not valid UTF-8", "other bytes are sent as bin");
  if (!stack_.empty() && stack_.back().expects_key()) return key(DictKey(std::string(text)));
  return scalar(Value(std::string(text)));
}

bool HeaderVisitor::visit_bin(const char* data, std::uint32_t size) {
  Bytes bytes{std::string(std::string_view(data, size))};
  if (!stack_.empty() && stack_.back().expects_key()) return key(DictKey(std::move(bytes)));
  return scalar(Value(std::move(bytes)));
}

bool HeaderVisitor::start_array(std::uint32_t count) {
  // Each element takes a byte at least: a larger count is a lie, and is told apart before anything is
  // reserved.
  if (count > header_size_) {
    return fail("an array of " + std::to_string(count) + " elements",
                "the whole header has " + std::to_string(header_size_) + " bytes");
  }
  if (stack_.empty()) {
    if (count != 3) return fail("an array of " + std::to_string(count), "expected [version, tree, tensors]");
    stack_.emplace_back(In::header, count);
    return true;
  }
  const Frame& top = stack_.back();
  switch (top.in) {
    case In::header:
      if (top.seen == 0) return fail("an array", "expected the format version");
      if (top.seen == 2) {
        if (count > kMaxTensors) {
          return fail(std::to_string(count) + " tensors", "expected at most " + std::to_string(kMaxTensors));
        }
        out_.segments.reserve(std::min<std::size_t>(count, kReserve));
        stack_.emplace_back(In::table, count);
        return true;
      }
      break;
    case In::table:
      if (count != 2) return fail("an entry of " + std::to_string(count), "expected [dtype, [dim, …]]");
      entry_ = Segment();
      stack_.emplace_back(In::entry, count);
      return true;
    case In::entry:
      if (top.seen == 0) return fail("an array", "expected a dtype number");
      if (count > kMaxDims) {
        return fail(std::to_string(count) + " dimensions", "expected at most " + std::to_string(kMaxDims));
      }
      entry_.shape.reserve(count);
      stack_.emplace_back(In::shape, count);
      return true;
    case In::list:
    case In::tuple:
      break;
    case In::dict:
      if (top.expects_key()) return fail("an array as dict key", "expected text, an integer or bytes");
      break;
    case In::untagged:
      return fail("an array without a tag", "expected an integer from 0 to 3 first");
    case In::tensor:
      return fail("an array", "expected a tensor's index");
    case In::shape:
      return fail("an array", "expected a dimension");
  }
  if (count == 0) return fail("an empty array", "expected a tag first");
  // One frame more than kMaxPayloadDepth containers at most: tag() refuses a container in the innermost one,
  // but a tensor reference may stand there.
  if (!count_node()) return false;
  stack_.emplace_back(In::untagged, count);
  return true;
}

bool HeaderVisitor::close_tensor_ref() {
  refs_end_ = std::max(refs_end_, ref_ + 1);
  stack_.pop_back();
  return deliver(Value(TensorRef{static_cast<std::uint32_t>(ref_)}));
}

bool HeaderVisitor::close_entry() {
  const auto length = packed_bytes(entry_.dtype, entry_.shape);
  if (length) entry_.length = *length;
  if (!length || !layout_.place(entry_)) {
    return fail("a shape " + shape_text(entry_.shape) + " of " + std::string(to_string(entry_.dtype)),
                "expected a body of at most " + std::to_string(kMaxBodySize) + " bytes");
  }
  out_.segments.push_back(std::move(entry_));
  stack_.pop_back();
  ++stack_.back().seen;
  return true;
}

bool HeaderVisitor::end_array() {
  Frame& top = stack_.back();
  switch (top.in) {
    case In::list: {
      Value value(List{std::move(top.items)});
      stack_.pop_back();
      return deliver(std::move(value));
    }
    case In::tuple: {
      Value value(Tuple{std::move(top.items)});
      stack_.pop_back();
      return deliver(std::move(value));
    }
    case In::dict: {
      if (const DictKey* twice = find_duplicate_key(top.dict)) {
        return fail("the dict key " + key_text(*twice) + " twice", "expected each once");
      }
      Value value(std::move(top.dict));
      stack_.pop_back();
      return deliver(std::move(value));
    }
    case In::tensor:
      return close_tensor_ref();
    case In::entry:
      return close_entry();
    case In::table:
    case In::shape:
      stack_.pop_back();
      ++stack_.back().seen;
      return true;
    case In::header:
      stack_.pop_back();
      return true;
    case In::untagged:
      break;
  }
  return fail("an array without a tag", "expected an integer from 0 to 3 first");
}

bool HeaderVisitor::finish() {
  if (refs_end_ > out_.segments.size()) {
    return fail("a reference to tensor " + std::to_string(refs_end_ - 1),
                "there are " + std::to_string(out_.segments.size()));
  }
  out_.body_size = layout_.size();
  return true;
}

}  // namespace

Result<DecodedHeader> decode_header(std::string_view header) {
  if (header.size() > kMaxHeaderSize) {
    return Error(ErrorKind::protocol, "payload header of " + std::to_string(header.size()) +
                                          " bytes; expected at most " + std::to_string(kMaxHeaderSize));
  }
  DecodedHeader out;
  HeaderVisitor visitor(header.size(), out);
  std::size_t used = 0;
  const bool parsed = msgpack::parse(header.data(), header.size(), used, visitor);
  if (!parsed || !visitor.finish()) return *std::move(visitor.error());
  if (used != header.size()) {
    return Error(ErrorKind::protocol, "payload header: " + std::to_string(header.size() - used) +
                                          " bytes after its end at byte " + std::to_string(used));
  }
  return out;
}

}  // namespace stagewire
