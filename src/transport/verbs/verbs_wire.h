// The messages between the two ends of a verbs link, carried by the session, and the transport's hello. All
// integers are little-endian; this file defines them, verbs_wire.cc writes and reads them with bounds.
// Stateless; any thread.
//
//   port       u8 link layer  u8 mtu  u16 lid  16 bytes gid
//   hello      u8 version 1  u8 usable; if 1: port
//   connect    u8 1  u64 request  port  u8 depth  queues        reader → lender
//   connected  u8 2  u64 request  port  u8 depth  queues        lender → reader
//   refused    u8 3  u64 request  u8 kind  text                 lender → reader
//   drop       u8 4  u64 request  u32 qpn                       reader → lender: the lender's own number
//   keys       u8 5  u16 count  count × u32 memory              reader → lender
//   key        u8 6  u32 memory  u64 address  u64 size  u64 piece  u16 count  count × u32 rkey
//   no_key     u8 7  u32 memory  u8 kind  text                  lender → reader
//   renewed    u8 8  port                                        either way: the sender of it has a device
//   (again) queues     u8 count  count × (u32 qpn  u32 psn) text       u16 length  bytes
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <stagewire/base/result.h>

namespace stagewire::verbs_wire {

inline constexpr std::size_t kMaxText = 512;

/// How a port is addressed.
struct Port {
  std::uint8_t link_layer = 0;  ///< as ibv_port_attr: 1 InfiniBand, 2 Ethernet
  std::uint8_t mtu = 1;         ///< as ibv_mtu: 1 (256 bytes) to 5 (4096)
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
  friend bool operator==(const Port&, const Port&) = default;
};
struct Queue {
  std::uint32_t qpn = 0;  ///< 24 bits
  std::uint32_t psn = 0;  ///< 24 bits
  friend bool operator==(const Queue&, const Queue&) = default;
};

struct Hello {
  bool usable = false;
  Port port;
  friend bool operator==(const Hello&, const Hello&) = default;
};
struct Connect {
  std::uint64_t request = 0;
  Port port;
  std::uint8_t depth = 1;  ///< reads that the reader's queue pairs may have on the way (max_qp_init_rd_atom)
  std::vector<Queue> queues;
  friend bool operator==(const Connect&, const Connect&) = default;
};
struct Connected {
  std::uint64_t request = 0;
  Port port;
  std::uint8_t depth = 1;  ///< reads that the lender's queue pairs answer at once (max_qp_rd_atom)
  std::vector<Queue> queues;
  friend bool operator==(const Connected&, const Connected&) = default;
};
struct Refused {
  std::uint64_t request = 0;
  ErrorKind kind = ErrorKind::internal;
  std::string text;
  friend bool operator==(const Refused&, const Refused&) = default;
};
struct Drop {
  std::uint64_t request = 0;
  std::uint32_t qpn = 0;
  friend bool operator==(const Drop&, const Drop&) = default;
};
struct Keys {
  std::vector<std::uint32_t> memories;
  friend bool operator==(const Keys&, const Keys&) = default;
};
struct Key {
  std::uint32_t memory = 0;
  std::uint64_t address = 0;  ///< of its first byte at the lender; meaningful to adapters alone
  std::uint64_t size = 0;     ///< bytes
  std::uint64_t piece = 0;    ///< bytes that each key but the last stands for
  std::vector<std::uint32_t> rkeys;
  friend bool operator==(const Key&, const Key&) = default;
};
struct NoKey {
  std::uint32_t memory = 0;
  ErrorKind kind = ErrorKind::internal;
  std::string text;
  friend bool operator==(const NoKey&, const NoKey&) = default;
};
/// A device was opened after the hello was said: for the first time, or again. What was connected to the one
/// before leads nowhere, and its keys open nothing.
struct Renewed {
  Port port;
  friend bool operator==(const Renewed&, const Renewed&) = default;
};
using Message = std::variant<Connect, Connected, Refused, Drop, Keys, Key, NoKey, Renewed>;

std::string encode(const Hello& hello);
/// Errors: protocol, version_mismatch.
Result<Hello> decode_hello(std::string_view text);

/// Texts are cut to kMaxText bytes.
std::string encode(const Message& message);
/// Errors: protocol: unknown type, cut short, bytes left over, counts of 0 or above the bounds of
/// verbs_options.h, numbers of more than 24 bits, keys that do not cover the memory, an unknown kind,
/// texts with control characters or that are not UTF-8.
Result<Message> decode(std::string_view text);

}  // namespace stagewire::verbs_wire
