// One example of every frame, with every field different from its default, for the tests of the wire format.
#pragma once

#include <string>
#include <vector>

#include "session/wire.h"

namespace stagewire::wire {

inline NodeId example_node() {
  NodeId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::uint8_t>(0xA0 + i);
  return id;
}

inline Welcome example_welcome() {
  Welcome f;
  f.version = 1;
  f.node = example_node();
  f.name = "thinker";
  f.boot_id = "b-1";
  f.unix_name = "sw";
  f.addresses = {"127.0.0.1:7000", "[::1]:7000"};
  f.lease_epoch = 3;
  f.heartbeat_ms = 1000;
  f.lease_ms = 10'000;
  f.transports = {{"shm", "hi"}, {"tcp", std::string("\0\xFF", 2)}};
  f.last_session = "0123456789abcdef";
  return f;
}

inline Claim example_claim() {
  Claim f;
  f.claim = 7;
  f.reader = "r0";
  f.name_space = "7000";
  f.from_stage = "ar";
  f.to_stage = "dit";
  f.key = "req-1";
  f.generation = 300;
  f.wait_ms = 30'000;
  f.flags = Claim::kWantView;
  f.settled_below = 5;
  return f;
}

inline Grant example_grant() {
  Grant f;
  f.claim = 7;
  f.lease = 70'000;
  f.generation = 300;
  f.lease_epoch = 3;
  f.flags = Grant::kCopyOnly;
  f.header = "HDR";
  f.body_size = 768;
  f.ranges = {{1, 256, 512}, {2, 5'000'000'000, 256}};
  f.kind = MemoryKind{MemoryKind::Type::cuda, 1};
  return f;
}

inline Grant example_inline_grant() {
  Grant f;
  f.claim = 8;
  f.lease = 9;
  f.generation = 1;
  f.lease_epoch = 3;
  f.flags = Grant::kInline;
  f.header = "HDR";
  f.body_size = 4;
  f.inline_body = std::string("\1\2\0\4", 4);
  return f;
}

inline Memory example_memory() {
  Memory f;
  f.memory = 2;
  f.size = 1U << 30U;
  f.transport = "shm";
  f.token = "tok";
  return f;
}

/// In the order of the frame types; two grants.
inline std::vector<Frame> example_frames() {
  return {example_welcome(),
          Heartbeat{1'000'000'007, 3, 5},
          HeartbeatAck{1'000'000'007, 4},
          example_claim(),
          CancelClaim{7},
          example_grant(),
          example_inline_grant(),
          Refuse{7, ErrorKind::replaced, "a newer one"},
          Consumed{7, 70'000},
          Release{8, 9},
          Settled{7},
          example_memory(),
          TransportMessage{"tcp", std::string("\0msg", 4)},
          Lifeline{},
          Goodbye{ErrorKind::closed, "bye"},
          MemoryGone{70'000}};
}

inline bool carries_descriptor(const Frame& frame) {
  return type_of(frame) == FrameType::lifeline;
}

/// Encodes without a tag; aborts on an Error.
inline std::string encoded(const Frame& frame) {
  std::string out;
  encode(frame, carries_descriptor(frame), 0, out).value();
  return out;
}

/// The body alone.
inline std::string encoded_body(const Frame& frame) {
  return encoded(frame).substr(kFrameHeaderSize);
}

}  // namespace stagewire::wire
