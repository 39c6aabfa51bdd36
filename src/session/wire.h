// The control protocol's frames: this file defines them, wire.cc writes and reads them with bounds.
// docs/protocol.md describes the same bytes in prose. Stateless; any thread.
//
// On the stream: u32 length of what follows, little-endian; u8 type; u8 flags (bit 0: one descriptor rides
// with it); u16 zero; body (one msgpack array, fields in the order of the struct); and, on authenticated
// sessions, a 16-byte tag (FrameAuth in session/handshake.h) over everything before it. Unknown trailing
// fields of a body are ignored, so that a later minor version can add some; missing ones are an error. Within
// a body: numbers are unsigned integers; text is msgpack str, bytes are bin; lists are flat arrays
// (addresses: [text…], transports: [name, bytes, …], ranges: [memory, offset, length, …]); a memory kind is
// [type, device]; an error kind is its number. New flag bits need a new protocol version: unknown ones are
// refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <stagewire/base/error.h>
#include <stagewire/base/node_id.h>
#include <stagewire/base/result.h>
#include <stagewire/memory/memory_kind.h>

#include "transport/transport.h"

namespace stagewire::wire {

inline constexpr std::uint16_t kVersionMin = 1;
inline constexpr std::uint16_t kVersionMax = 1;

/// Bounds, each checked before anything of that size is allocated.
inline constexpr std::size_t kFrameHeaderSize = 8;
inline constexpr std::size_t kTagSize = 16;
/// A grant with the largest header, inline bytes and ranges fits (bound on FrameHeader::length).
inline constexpr std::uint32_t kMaxFrame = 16U << 20U;
inline constexpr std::size_t kMaxWelcome = 64U << 10U;  ///< bound on a welcome's FrameHeader::length
inline constexpr std::size_t kMaxHeader = 8U << 20U;    ///< payload header: ~100,000 tensors
inline constexpr std::size_t kMaxInline = 64U << 10U;   ///< bound on the wire; the default limit is 8 KiB
inline constexpr std::size_t kMaxName = 1024;           ///< keys, edges, namespaces, reader names
inline constexpr std::size_t kMaxRanges = 1U << 16U;
inline constexpr std::size_t kMaxTransports = 16;
inline constexpr std::size_t kMaxAddresses = 16;
inline constexpr std::size_t kMaxMessage = 64U << 10U;  ///< transport messages
inline constexpr std::size_t kMaxErrorText = 2048;
inline constexpr std::size_t kMaxTransportName = 64;
inline constexpr std::size_t kMaxUnixName = 107;  ///< sockaddr_un::sun_path holds 108 bytes with its NUL
inline constexpr std::uint32_t kMaxPeriodMs = 86'400'000;  ///< one day: bound on heartbeat_ms and lease_ms

enum class FrameType : std::uint8_t {
  welcome = 1,
  heartbeat = 2,
  heartbeat_ack = 3,
  claim = 4,
  cancel_claim = 5,
  grant = 6,
  refuse = 7,
  consumed = 8,
  release = 9,
  settled = 10,
  memory = 11,
  transport_message = 12,
  lifeline = 13,
  goodbye = 14,
  memory_gone = 15,
};
inline constexpr FrameType kLastFrameType = FrameType::memory_gone;

/// First frame of each side after authentication.
struct Welcome {
  std::uint16_t version = kVersionMax;
  NodeId node;
  std::string name;     ///< for people: process name or configured
  std::string boot_id;  ///< the kernel's boot id: only a hint that the host may be the same
  std::string
      unix_name;  ///< abstract socket name (without the leading NUL) or path beginning with '/'; may be empty
  std::vector<std::string> addresses;  ///< listening addresses, "host:port"
  std::uint64_t lease_epoch = 0;       ///< of the sender of this frame, as a lender
  std::uint32_t heartbeat_ms = 0;      ///< the interval at which it will send heartbeats
  std::uint32_t lease_ms = 0;          ///< after how much silence it expires our leases
  std::vector<std::pair<std::string, std::string>> transports;  ///< name, hello bytes
  std::string last_session;  ///< tag of the last session with this peer that has ended for the sender (16
                             ///< bytes), or empty
};

/// Sent every heartbeat interval by each side; anything received counts as a sign of life.
struct Heartbeat {
  std::uint64_t sent_ns = 0;  ///< sender's CLOCK_BOOTTIME when sent; echoed, meaningless to the peer
  std::uint64_t lease_epoch =
      0;  ///< the epoch of the *peer* (as a lender) that the sender of this frame knows
  std::uint64_t settled_below =
      0;  ///< all claims with a smaller number are over for the reader: the lender may forget them
};
struct HeartbeatAck {
  std::uint64_t sent_ns = 0;      ///< copied from the heartbeat
  std::uint64_t lease_epoch = 0;  ///< of the sender of this frame, as a lender
};

struct Claim {
  std::uint64_t claim =
      0;               ///< sequence number, unique within (reader node, lender node) for the reader's life
  std::string reader;  ///< reader's name; empty: the node itself
  std::string name_space;
  std::string from_stage;
  std::string to_stage;
  std::string key;
  std::uint64_t generation = 0;  ///< 0: whichever is or comes next
  std::uint32_t wait_ms = 0;     ///< how long it may wait at the lender; 0: answer at once
  std::uint8_t flags = 0;        ///< kWantView, …
  std::uint64_t settled_below = 0;
  static constexpr std::uint8_t kWantView = 1;  ///< would hold the lease for as long as its view lives
};
struct CancelClaim {
  std::uint64_t claim = 0;
};
struct Grant {
  std::uint64_t claim = 0;
  std::uint64_t lease = 0;
  std::uint64_t generation = 0;
  std::uint64_t lease_epoch = 0;
  std::uint8_t flags = 0;
  std::string header;  ///< payload header (payload/codec.h)
  std::uint64_t body_size = 0;
  std::vector<RemoteRange>
      ranges;  ///< where the body lies, in order; empty when inline or when body_size is 0
  MemoryKind kind = MemoryKind::host();
  std::string inline_body;  ///< the whole body if kInline
  static constexpr std::uint8_t kInline = 1;
  static constexpr std::uint8_t kCopyOnly = 2;  ///< the reader's share of views is used up
  static constexpr std::uint8_t kRegion = 4;    ///< lies in regions: over transports that can be fenced alone
};
struct Refuse {
  std::uint64_t claim = 0;
  ErrorKind kind = ErrorKind::internal;
  std::string message;
};
/// The reader has the bytes; ends the lease. Resent after a reconnect until settled.
struct Consumed {
  std::uint64_t claim = 0;
  std::uint64_t lease = 0;
};
/// The reader gave up: ends the lease, the read is still owed. Resent after a reconnect until settled.
struct Release {
  std::uint64_t claim = 0;
  std::uint64_t lease = 0;
};
/// The lender has recorded the end of this claim.
struct Settled {
  std::uint64_t claim = 0;
};
/// A memory that grants may name, for one transport. The descriptor, if any, rides with the frame.
struct Memory {
  std::uint32_t memory = 0;
  std::uint64_t size = 0;
  MemoryKind kind = MemoryKind::host();
  std::string transport;
  std::string token;
};
/// A memory that was announced before can't be read any more, over any transport; its number is not used
/// again. Numbers are given in ascending order.
struct MemoryGone {
  std::uint32_t memory = 0;
};
struct TransportMessage {
  std::string transport;
  std::string message;
};
/// Carries one end of the sender's lifeline socket pair.
struct Lifeline {};
struct Goodbye {
  ErrorKind kind = ErrorKind::closed;
  std::string message;
};

using Frame = std::variant<Welcome, Heartbeat, HeartbeatAck, Claim, CancelClaim, Grant, Refuse, Consumed,
                           Release, Settled, Memory, TransportMessage, Lifeline, Goodbye, MemoryGone>;

FrameType type_of(const Frame& frame) noexcept;
std::string_view to_string(FrameType type) noexcept;

/// Appends the frame's 8-byte header and body to `out`. `tag_size` (0 or kTagSize) bytes of tag are counted
/// in the length but not appended. The frame's own bounds are the caller's duty and asserted by an internal
/// Error.
/// Only `memory` may and `lifeline` must go with a descriptor. The texts of `refuse` and `goodbye` are the
/// exception to the duty: longer ones are cut, because an error must never be lost for being wordy. On an
/// Error `out` is as it was.
Status encode(const Frame& frame, bool with_descriptor, std::size_t tag_size, std::string& out);

/// The 8-byte header, checked.
struct FrameHeader {
  std::uint32_t length = 0;  ///< bytes after the length field itself: 4 + body + tag
  FrameType type = FrameType::goodbye;
  bool with_descriptor = false;
};
/// Errors: protocol (unknown type, non-zero reserved bits, length out of [4 + tag_size, limit] or above
/// kMaxWelcome for a welcome, a descriptor with a frame type that has none, a lifeline without).
Result<FrameHeader> decode_frame_header(std::string_view eight_bytes, std::size_t tag_size,
                                        std::uint32_t limit = kMaxFrame);

/// Decodes a body (without tag). Allocates at most a small multiple of the body's own size. Errors: protocol,
/// naming the frame type, the field, the value and the bound. Error kinds of later versions arrive as
/// ErrorKind::internal with their text; the texts of `refuse` and `goodbye` arrive printable.
Result<Frame> decode_body(FrameType type, std::string_view body);

/// `text` made safe for logs and error texts: control characters and bytes that are not valid UTF-8 become
/// \xNN, and at most `limit` bytes are given (an ellipsis marks a cut). Applying it twice changes nothing
/// more.
std::string printable(std::string_view text, std::size_t limit = 256);

}  // namespace stagewire::wire
