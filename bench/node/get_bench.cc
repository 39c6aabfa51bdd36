// The C++ side of bench/python/overhead.py: reads lines "COUNT TICKET", gets that payload so often, one get
// after the other, and answers each line with the median in nanoseconds.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <stagewire/node/node.h>

int main() {
  using namespace stagewire;
  NodeConfig config;
  config.publish_pool_size = config.receive_pool_size = 64ULL << 20U;
  const Result<std::shared_ptr<Node>> node = Node::create(std::move(config));
  if (!node.ok()) return std::cerr << node.error() << '\n', 1;
  std::size_t count = 0;
  std::uint64_t serial = 0;  // a reader gets a payload once, so each get is another reader's
  std::string text;
  while (std::cin >> count >> text) {
    const Result<Ticket> ticket = Ticket::parse(text);
    if (!ticket.ok() || count == 0) return std::cerr << "expected: COUNT TICKET\n", 2;
    std::vector<std::chrono::nanoseconds> times;
    for (std::size_t i = 0; i < count; ++i) {
      GetOptions options(Deadline::in(std::chrono::seconds(30)));
      options.reader = "c++ " + std::to_string(++serial);
      const auto start = std::chrono::steady_clock::now();
      const Result<Got> got = (*node)->get(Source::of(*ticket), std::move(options));
      times.push_back(std::chrono::steady_clock::now() - start);
      if (!got.ok()) return std::cerr << got.error() << '\n', 1;
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(count / 2), times.end());
    std::cout << times[count / 2].count() << std::endl;
  }
  return 0;
}
