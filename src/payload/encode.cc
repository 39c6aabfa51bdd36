// encode(): lays out the tensors of a payload and writes its header. Runs on the publishing caller's thread
// and owns nothing beyond the call.
//
// The header is one msgpack array of three elements:
//
//   header  = [1, node, [entry, …]]         format version, tree, tensor table
//   node    = nil | bool | int | float64 | str | bin | list | tuple | dict | tensor
//   list    = [0, node, …]
//   tuple   = [1, node, …]
//   dict    = [2, key, node, key, node, …]  in insertion order, no key twice
//   tensor  = [3, index]                    an entry of the table; any number of nodes may name the same one
//   key     = str | int | bin               an int within int64
//   entry   = [dtype, [dim, …]]             dtype: the number of stagewire::DType; dims: 0 … 2^63-1
//
// Ints span int64 and uint64; a value that fits int64 is decoded as one. Floats are always float64, with
// every bit of a NaN kept. str is well-formed UTF-8, NUL allowed; bin is any bytes. msgpack maps, extensions
// and float32 do not occur. Every array of the tree starts with a tag, so lists, tuples, dicts and tensors
// can be told apart and dicts keep their order. Nothing follows the array.
//
// Where tensors lie in the body is not sent. Both sides compute it: in table order, each tensor starts at the
// next multiple of 256 and takes (product of dims) × (bytes per element), row-major, little-endian; the body
// ends with the last tensor. No header can therefore name overlapping or foreign bytes.
//
// Bounds (limits.h): 64 containers inside each other, 2^20 values and keys, 100,000 tensors of at most 32
// dimensions, 8 MiB of header, 2^47 bytes of body.
#include <algorithm>
#include <bit>
#include <msgpack.hpp>
#include <string>

#include "payload/codec.h"
#include "payload/dict_keys.h"
#include "payload/format.h"
#include "payload/layout.h"
#include "payload/limits.h"
#include "payload/utf8.h"

namespace stagewire {
namespace {

/// What msgpack::packer writes to.
class HeaderBuffer {
 public:
  explicit HeaderBuffer(std::size_t expected_size) { bytes_.reserve(expected_size); }
  void write(const char* data, std::size_t size) { bytes_.append(data, size); }
  std::size_t size() const noexcept { return bytes_.size(); }
  std::string take() noexcept { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// A named tensor takes about 32 bytes of header: one allocation for the usual dict of tensors.
std::size_t expected_header_size(const Payload& payload) noexcept {
  return 64 + 32 * std::min(payload.tensors().size(), kMaxTensors);
}

Error invalid(std::string message) {
  return Error(ErrorKind::invalid_argument, std::move(message));
}

Error header_too_large() {
  return Error(ErrorKind::too_large, "the header would take more than " + std::to_string(kMaxHeaderSize) +
                                         " bytes; put large text and bytes into u8 tensors, and many numbers "
                                         "into one tensor");
}

/// Whether the elements lie within one address space, so that gather() can compute with offsets freely.
bool plausible_strides(const Tensor& t) noexcept {
  constexpr auto kReach = static_cast<std::int64_t>(kMaxBodySize);
  for (std::size_t i = 0; i < t.shape.size(); ++i) {
    std::int64_t reach = 0;
    if (t.shape[i] == 1) continue;
    if (__builtin_mul_overflow(t.strides[i], t.shape[i] - 1, &reach) || reach > kReach || reach < -kReach) {
      return false;
    }
  }
  return true;
}

class Encoder {
 public:
  explicit Encoder(const Payload& payload) : payload_(payload) {}

  Result<EncodedPayload> run();

 private:
  /// A container whose items are being written; exactly one of `value` and `pair` is walked.
  struct Open {
    const Value* value = nullptr;
    const std::pair<DictKey, Value>* pair = nullptr;
    std::size_t left = 0;
  };

  Status tree();
  Status node(const Value& value);
  Status open(NodeTag tag, std::size_t items, std::size_t elements_per_item, Open walk);
  Status key(const DictKey& key);
  void write_float64(double number);
  Status text(const std::string& text, std::string_view what);
  Status bytes(const std::string& bytes);
  Status count_node();
  bool fits(std::size_t bytes) const noexcept {
    return bytes <= kMaxHeaderSize && buffer_.size() <= kMaxHeaderSize - bytes;
  }
  Status tensor(std::size_t index);

  const Payload& payload_;
  HeaderBuffer buffer_{expected_header_size(payload_)};
  msgpack::packer<HeaderBuffer> packer_{buffer_};
  std::vector<Open> stack_;
  std::size_t nodes_ = 0;
  BodyLayout layout_;
  EncodedPayload out_;
};

Status Encoder::count_node() {
  if (++nodes_ > kMaxPayloadNodes) {
    return invalid("the payload has more than " + std::to_string(kMaxPayloadNodes) +
                   " values and keys; put many numbers into one tensor");
  }
  if (!fits(16)) return header_too_large();  // above what any tag, count or number takes
  return {};
}

Status Encoder::bytes(const std::string& bytes) {
  if (!fits(bytes.size())) return header_too_large();
  packer_.pack_bin(static_cast<std::uint32_t>(bytes.size()));
  packer_.pack_bin_body(bytes.data(), static_cast<std::uint32_t>(bytes.size()));
  return {};
}

Status Encoder::text(const std::string& text, std::string_view what) {
  if (!fits(text.size())) return header_too_large();
  if (!is_utf8(text)) return invalid("a " + std::string(what) + " is not valid UTF-8; send it as bytes");
  packer_.pack_str(static_cast<std::uint32_t>(text.size()));
  packer_.pack_str_body(text.data(), static_cast<std::uint32_t>(text.size()));
  return {};
}

Status Encoder::key(const DictKey& key) {
  STAGEWIRE_TRY(count_node());
  if (const auto* name = std::get_if<std::string>(&key)) return text(*name, "dict key");
  if (const auto* raw = std::get_if<Bytes>(&key)) return bytes(raw->data);
  packer_.pack_int64(*std::get_if<std::int64_t>(&key));
  return {};
}

/// msgpack-c's packer turns 2.0 into the integer 2; a float has to stay one.
void Encoder::write_float64(double number) {
  const auto bits = std::bit_cast<std::uint64_t>(number);
  char bytes[9] = {'\xcb'};
  for (unsigned i = 0; i < 8; ++i) bytes[1 + i] = static_cast<char>(bits >> (56 - 8 * i) & 0xFFU);
  buffer_.write(bytes, sizeof bytes);
}

Status Encoder::open(NodeTag tag, std::size_t items, std::size_t elements_per_item, Open walk) {
  if (stack_.size() == kMaxPayloadDepth) {
    return invalid("the payload nests more than " + std::to_string(kMaxPayloadDepth) +
                   " containers inside each other; does one contain itself?");
  }
  if (items > kMaxPayloadNodes) {
    return invalid("a container has " + std::to_string(items) + " items; expected at most " +
                   std::to_string(kMaxPayloadNodes) + "; put many numbers into one tensor");
  }
  packer_.pack_array(static_cast<std::uint32_t>(1 + items * elements_per_item));
  packer_.pack_uint8(static_cast<std::uint8_t>(tag));
  walk.left = items;
  stack_.push_back(walk);
  return {};
}

Status Encoder::node(const Value& value) {
  STAGEWIRE_TRY(count_node());
  const Value::Variant& v = value.variant();
  if (const auto* ref = std::get_if<TensorRef>(&v)) {
    if (ref->index >= payload_.tensors().size()) {
      return invalid("the tree refers to tensor " + std::to_string(ref->index) + " of a payload with " +
                     std::to_string(payload_.tensors().size()) + "; use Payload::add");
    }
    packer_.pack_array(2);
    packer_.pack_uint8(static_cast<std::uint8_t>(NodeTag::tensor));
    packer_.pack_uint32(ref->index);
  } else if (const auto* dict = std::get_if<Dict>(&v)) {
    STAGEWIRE_TRY(open(NodeTag::dict, dict->items.size(), 2, Open{.pair = dict->items.data()}));
    if (const DictKey* twice = find_duplicate_key(*dict)) {
      return invalid("the dict key " + key_text(*twice) + " occurs twice");
    }
  } else if (const auto* list = std::get_if<List>(&v)) {
    return open(NodeTag::list, list->items.size(), 1, Open{.value = list->items.data()});
  } else if (const auto* tuple = std::get_if<Tuple>(&v)) {
    return open(NodeTag::tuple, tuple->items.size(), 1, Open{.value = tuple->items.data()});
  } else if (const auto* str = std::get_if<std::string>(&v)) {
    return text(*str, "text value");
  } else if (const auto* raw = std::get_if<Bytes>(&v)) {
    return bytes(raw->data);
  } else if (const auto* number = std::get_if<std::int64_t>(&v)) {
    packer_.pack_int64(*number);
  } else if (const auto* natural = std::get_if<std::uint64_t>(&v)) {
    packer_.pack_uint64(*natural);
  } else if (const auto* real = std::get_if<double>(&v)) {
    write_float64(*real);
  } else if (const auto* flag = std::get_if<bool>(&v)) {
    if (*flag) {
      packer_.pack_true();
    } else {
      packer_.pack_false();
    }
  } else {
    packer_.pack_nil();
  }
  return {};
}

Status Encoder::tree() {
  STAGEWIRE_TRY(node(payload_.root()));
  while (!stack_.empty()) {
    Open& top = stack_.back();
    if (top.left == 0) {
      stack_.pop_back();
      continue;
    }
    --top.left;
    const Value* value = nullptr;
    if (top.pair != nullptr) {
      STAGEWIRE_TRY(key(top.pair->first));
      value = &top.pair++->second;
    } else {
      value = top.value++;
    }
    STAGEWIRE_TRY(node(*value));  // may grow the stack: `top` is not used after this
  }
  return {};
}

Status Encoder::tensor(std::size_t index) {
  const Tensor& t = payload_.tensors()[index];
  const auto bad = [index](const std::string& what) {
    return invalid("tensor " + std::to_string(index) + " " + what);
  };
  if (static_cast<std::uint8_t>(t.dtype) >= kDTypeCount) {
    return bad("has the unknown dtype " + std::to_string(static_cast<unsigned>(t.dtype)));
  }
  if (!t.kind.is_host())
    return bad("lies in device memory, which this version cannot publish; copy it to the host");
  if (t.shape.size() > kMaxDims) {
    return bad("has " + std::to_string(t.shape.size()) + " dimensions; expected at most " +
               std::to_string(kMaxDims));
  }
  if (!t.strides.empty() && t.strides.size() != t.shape.size()) {
    return bad("has " + std::to_string(t.strides.size()) + " strides for " + std::to_string(t.shape.size()) +
               " dimensions; expected as many, or none for a contiguous tensor");
  }
  for (const std::int64_t dim : t.shape) {
    if (dim < 0) return bad("has a negative dimension in its shape " + shape_text(t.shape));
  }
  const auto length = packed_bytes(t.dtype, t.shape);
  Segment segment{t.dtype, t.shape, 0, length.value_or(0)};
  if (!length || !layout_.place(segment)) {
    return Error(ErrorKind::too_large, "the body would take more than " + std::to_string(kMaxBodySize) +
                                           " bytes with tensor " + std::to_string(index) + " of shape " +
                                           shape_text(t.shape));
  }
  if (*length > 0 && !t.strides.empty() && !plausible_strides(t)) {
    return bad("has strides that reach further than " + std::to_string(kMaxBodySize) + " bytes");
  }
  if (t.data == nullptr && *length > 0) return bad("has null data and " + std::to_string(*length) + " bytes");

  if (!fits(16 + 9 * t.shape.size())) return header_too_large();
  packer_.pack_array(2);
  packer_.pack_uint8(static_cast<std::uint8_t>(t.dtype));
  packer_.pack_array(static_cast<std::uint32_t>(t.shape.size()));
  for (const std::int64_t dim : t.shape) packer_.pack_uint64(static_cast<std::uint64_t>(dim));
  out_.segments.push_back(std::move(segment));
  return {};
}

Result<EncodedPayload> Encoder::run() {
  const std::size_t tensors = payload_.tensors().size();
  if (tensors > kMaxTensors) {
    return invalid("the payload has " + std::to_string(tensors) + " tensors; expected at most " +
                   std::to_string(kMaxTensors));
  }
  stack_.reserve(8);
  out_.segments.reserve(tensors);

  packer_.pack_array(3);
  packer_.pack_uint64(kHeaderVersion);
  STAGEWIRE_TRY(tree());
  packer_.pack_array(static_cast<std::uint32_t>(tensors));
  for (std::size_t i = 0; i < tensors; ++i) STAGEWIRE_TRY(tensor(i));
  if (!fits(0)) return header_too_large();
  out_.header = buffer_.take();
  out_.body_size = layout_.size();
  return std::move(out_);
}

}  // namespace

Result<EncodedPayload> encode(const Payload& payload) {
  return Encoder(payload).run();
}

}  // namespace stagewire
