// The peer program. See peer.h.
#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "process/peer/peer.h"
#include "process/support/process_state.h"

namespace {

constexpr int kPipe = 3;

int serve() {
  using namespace stagewire::test;
  Commands commands;
  add_node_commands(commands);
  add_fault_commands(commands);
  add_connector_commands(commands);
  Peer peer;
  peer.descriptors_at_start = open_descriptors();
  std::string received;
  for (;;) {
    std::size_t end = received.find('\n');
    while (end == std::string::npos) {
      std::array<char, 4096> chunk{};
      const ssize_t got = ::read(kPipe, chunk.data(), chunk.size());
      if (got <= 0) return 0;
      received.append(chunk.data(), static_cast<std::size_t>(got));
      end = received.find('\n');
    }
    const Line line = Line::parse(std::string_view(received).substr(0, end));
    received.erase(0, end + 1);
    if (line.verb == "exit") return 0;
    const auto command = commands.find(line.verb);
    const Line answer = command == commands.end()
                            ? Line("error").with("text", "no such command: " + line.verb)
                            : command->second(peer, line);
    const std::string text = answer.to_text() + "\n";
    if (::send(kPipe, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) return 1;
  }
}

}  // namespace

int main() {
  try {
    return serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stagewire_test_peer: %s\n", error.what());
    return 4;
  }
}
