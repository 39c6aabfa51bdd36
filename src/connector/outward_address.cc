// See outward_address.h.
#include "connector/outward_address.h"

#include <arpa/inet.h>
#include <array>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fd.h"

namespace stagewire {

std::string outward_address() {
  // Connecting a datagram socket only asks the routing table. The target is of TEST-NET-1 (RFC 5737):
  // nobody's.
  const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(9);
  target.sin_addr.s_addr = htonl(0xC0000201);  // 192.0.2.1
  sockaddr_in own{};
  socklen_t length = sizeof(own);
  std::array<char, INET_ADDRSTRLEN> text{};
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      ::inet_ntop(AF_INET, &own.sin_addr, text.data(), text.size()) == nullptr) {
    return "127.0.0.1";
  }
  return text.data();
}

}  // namespace stagewire
