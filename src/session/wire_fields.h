// The fields of every frame, once: their order on the wire, their names in errors and their bounds. The
// encoder and the decoder walk the same description, so they cannot disagree. Stateless; included by
// wire_encode.cc and wire_decode.cc alone.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "session/wire.h"

namespace stagewire::wire {

inline constexpr std::size_t kSessionTagSize = 16;  ///< of Welcome::last_session, unless it is empty

/// What a string field may hold.
enum class Text : std::uint8_t {
  any,      ///< any bytes: the string is compared with others and never changed (keys, names of readers)
  plain,    ///< printable ASCII alone; else refused
  message,  ///< for people: cut when sent, made printable when received
};

/// A bound for integers that may take any value of their type.
template <typename T>
inline constexpr std::uint64_t kAny = std::numeric_limits<T>::max();

template <typename T>
inline constexpr FrameType kTypeOf = FrameType{};
template <>
inline constexpr FrameType kTypeOf<Welcome> = FrameType::welcome;
template <>
inline constexpr FrameType kTypeOf<Heartbeat> = FrameType::heartbeat;
template <>
inline constexpr FrameType kTypeOf<HeartbeatAck> = FrameType::heartbeat_ack;
template <>
inline constexpr FrameType kTypeOf<Claim> = FrameType::claim;
template <>
inline constexpr FrameType kTypeOf<CancelClaim> = FrameType::cancel_claim;
template <>
inline constexpr FrameType kTypeOf<Grant> = FrameType::grant;
template <>
inline constexpr FrameType kTypeOf<Refuse> = FrameType::refuse;
template <>
inline constexpr FrameType kTypeOf<Consumed> = FrameType::consumed;
template <>
inline constexpr FrameType kTypeOf<Release> = FrameType::release;
template <>
inline constexpr FrameType kTypeOf<Settled> = FrameType::settled;
template <>
inline constexpr FrameType kTypeOf<Memory> = FrameType::memory;
template <>
inline constexpr FrameType kTypeOf<TransportMessage> = FrameType::transport_message;
template <>
inline constexpr FrameType kTypeOf<Lifeline> = FrameType::lifeline;
template <>
inline constexpr FrameType kTypeOf<Goodbye> = FrameType::goodbye;
template <>
inline constexpr FrameType kTypeOf<MemoryGone> = FrameType::memory_gone;

/// Calls `v` for each field of `f` in wire order. F is a frame, const for the encoder.
template <typename V, typename F>
void describe(V& v, F& f) {
  using T = std::remove_const_t<F>;
  if constexpr (std::is_same_v<T, Welcome>) {
    v.number("version", f.version, 1, kAny<std::uint16_t>);
    v.node("node", f.node);
    v.text("name", f.name, 0, kMaxName, Text::message);
    v.text("boot_id", f.boot_id, 0, kMaxName, Text::plain);
    v.text("unix_name", f.unix_name, 0, kMaxUnixName, Text::any);
    v.texts("addresses", f.addresses, kMaxAddresses, kMaxName);
    v.number("lease_epoch", f.lease_epoch, 0, kAny<std::uint64_t>);
    v.number("heartbeat_ms", f.heartbeat_ms, 1, kMaxPeriodMs);
    v.number("lease_ms", f.lease_ms, 1, kMaxPeriodMs);
    v.pairs("transports", f.transports, kMaxTransports, kMaxTransportName, kMaxTokenSize);
    v.bytes("last_session", f.last_session, kSessionTagSize);
  } else if constexpr (std::is_same_v<T, Heartbeat>) {
    v.number("sent_ns", f.sent_ns, 0, kAny<std::uint64_t>);
    v.number("lease_epoch", f.lease_epoch, 0, kAny<std::uint64_t>);
    v.number("settled_below", f.settled_below, 0, kAny<std::uint64_t>);
  } else if constexpr (std::is_same_v<T, HeartbeatAck>) {
    v.number("sent_ns", f.sent_ns, 0, kAny<std::uint64_t>);
    v.number("lease_epoch", f.lease_epoch, 0, kAny<std::uint64_t>);
  } else if constexpr (std::is_same_v<T, Claim>) {
    v.number("claim", f.claim, 0, kAny<std::uint64_t>);
    v.text("reader", f.reader, 0, kMaxName, Text::any);
    v.text("name_space", f.name_space, 0, kMaxName, Text::any);
    v.text("from_stage", f.from_stage, 0, kMaxName, Text::any);
    v.text("to_stage", f.to_stage, 0, kMaxName, Text::any);
    v.text("key", f.key, 0, kMaxName, Text::any);
    v.number("generation", f.generation, 0, kAny<std::uint64_t>);
    v.number("wait_ms", f.wait_ms, 0, kAny<std::uint32_t>);
    v.number("flags", f.flags, 0, Claim::kWantView);
    v.number("settled_below", f.settled_below, 0, kAny<std::uint64_t>);
  } else if constexpr (std::is_same_v<T, Grant>) {
    v.number("claim", f.claim, 0, kAny<std::uint64_t>);
    v.number("lease", f.lease, 0, kAny<std::uint64_t>);
    v.number("generation", f.generation, 0, kAny<std::uint64_t>);
    v.number("lease_epoch", f.lease_epoch, 0, kAny<std::uint64_t>);
    v.number("flags", f.flags, 0, Grant::kInline | Grant::kCopyOnly | Grant::kRegion);
    v.bytes("header", f.header, kMaxHeader);
    v.number("body_size", f.body_size, 0, kAny<std::uint64_t>);
    v.ranges("ranges", f.ranges, kMaxRanges);
    v.memory_kind("kind", f.kind);
    v.bytes("inline_body", f.inline_body, kMaxInline);
  } else if constexpr (std::is_same_v<T, Refuse>) {
    v.number("claim", f.claim, 0, kAny<std::uint64_t>);
    v.error_kind("kind", f.kind);
    v.text("message", f.message, 0, kMaxErrorText, Text::message);
  } else if constexpr (std::is_same_v<T, Consumed> || std::is_same_v<T, Release>) {
    v.number("claim", f.claim, 0, kAny<std::uint64_t>);
    v.number("lease", f.lease, 0, kAny<std::uint64_t>);
  } else if constexpr (std::is_same_v<T, CancelClaim> || std::is_same_v<T, Settled>) {
    v.number("claim", f.claim, 0, kAny<std::uint64_t>);
  } else if constexpr (std::is_same_v<T, Memory>) {
    v.number("memory", f.memory, 0, kAny<std::uint32_t>);
    v.number("size", f.size, 0, kAny<std::uint64_t>);
    v.memory_kind("kind", f.kind);
    v.text("transport", f.transport, 1, kMaxTransportName, Text::plain);
    v.bytes("token", f.token, kMaxTokenSize);
  } else if constexpr (std::is_same_v<T, MemoryGone>) {
    v.number("memory", f.memory, 0, kAny<std::uint32_t>);
  } else if constexpr (std::is_same_v<T, TransportMessage>) {
    v.text("transport", f.transport, 1, kMaxTransportName, Text::plain);
    v.bytes("message", f.message, kMaxMessage);
  } else if constexpr (std::is_same_v<T, Goodbye>) {
    v.error_kind("kind", f.kind);
    v.text("message", f.message, 0, kMaxErrorText, Text::message);
  } else {
    static_assert(std::is_same_v<T, Lifeline>, "a frame without a description");
  }
}

/// What is wrong with the fields of a frame taken together, or an empty string. Each field is within its own
/// bounds already.
std::string problem_of(const Grant& grant);
std::string problem_of(const Welcome& welcome);
template <typename F>
std::string problem_of(const F& /*frame*/) {
  return {};
}

/// The words for a string field that breaks its rule, or an empty string.
std::string problem_of_text(std::string_view value, std::size_t min, std::size_t max, Text rule);

/// Whether a frame of this type may, and whether it must, come with a descriptor.
constexpr bool may_carry_descriptor(FrameType type) noexcept {
  return type == FrameType::memory || type == FrameType::lifeline;
}
constexpr bool must_carry_descriptor(FrameType type) noexcept {
  return type == FrameType::lifeline;
}

}  // namespace stagewire::wire
