// See peer.h.
#include "bench/peer.h"

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <stagewire/node/node.h>

#include "bench/bare.h"
#include "bench/bench_node.h"
#include "bench/data.h"
#include "bench/peer_process.h"

namespace stagewire::tools {

namespace {

using SteadyClock = std::chrono::steady_clock;

std::int64_t nanoseconds_of(SteadyClock::time_point point) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(point.time_since_epoch()).count();
}

class BenchPeer {
 public:
  Result<Fields> handle(const Fields& command) {
    static const std::map<std::string, std::pair<std::size_t, Result<Fields> (BenchPeer::*)(const Fields&)>>
        kKnown{
            {"config", {2, &BenchPeer::config}},     {"set", {2, &BenchPeer::set}},
            {"base", {3, &BenchPeer::base}},         {"start", {2, &BenchPeer::start}},
            {"buffer", {3, &BenchPeer::buffer}},     {"memory", {3, &BenchPeer::memory}},
            {"publish", {6, &BenchPeer::publish}},   {"put", {5, &BenchPeer::put}},
            {"withdraw", {2, &BenchPeer::withdraw}}, {"echo", {2, &BenchPeer::echo}},
            {"stream", {1, &BenchPeer::stream}},     {"answer", {3, &BenchPeer::answer_claims}},
            {"fill", {4, &BenchPeer::fill}},         {"cycle", {3, &BenchPeer::cycle}},
            {"usage", {1, &BenchPeer::usage}},       {"wait-claims", {2, &BenchPeer::wait_claims}},
            {"check", {4, &BenchPeer::check}},       {"end-data", {1, &BenchPeer::end_data}},
        };
    const auto known = kKnown.find(command.front());
    if (known == kKnown.end())
      return Error(ErrorKind::invalid_argument, "unknown command '" + command.front() + "'");
    const auto& [count, function] = known->second;
    if (command.size() != count)
      return Error(ErrorKind::invalid_argument,
                   "'" + command.front() + "' takes " + std::to_string(count - 1) + " fields");
    if (!node_ && command.front() != "config" && command.front() != "set" && command.front() != "base" &&
        command.front() != "start") {
      return Error(ErrorKind::invalid_argument, "the node is not started yet");
    }
    return (this->*function)(command);
  }

 private:
  struct Slot {
    std::shared_ptr<Buffer> buffer;  // of the publish pool, or none
    Memory memory;                   // of the process's own otherwise
    std::uint64_t size = 0;
    std::byte* data() const { return buffer ? buffer->data() : memory.data(); }
  };

  static std::uint64_t number(const std::string& text) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  Result<Slot*> slot(const std::string& text) {
    const auto found = slots_.find(number(text));
    if (found == slots_.end()) return Error(ErrorKind::invalid_argument, "there is no slot " + text);
    return &found->second;
  }

  Result<Fields> config(const Fields& f) {
    settings_.config_file = f[1];
    return Fields{};
  }
  Result<Fields> set(const Fields& f) {
    settings_.set.push_back(f[1]);
    return Fields{};
  }
  Result<Fields> base(const Fields& f) {
    base_.emplace_back(f[1], f[2]);
    return Fields{};
  }
  Result<Fields> start(const Fields& f) {
    STAGEWIRE_ASSIGN(node_, start_bench_node(settings_, base_, f[1] == "tcp"));
    return Fields{node_->addresses().front(), node_->id().hex()};
  }

  // buffer SLOT BYTES, filled with the pattern of the slot's number.
  Result<Fields> buffer(const Fields& f) {
    const std::uint64_t size = number(f[2]);
    STAGEWIRE_ASSIGN(Buffer made,
                     node_->publish_pool()->allocate(size, "bench", Deadline::in(std::chrono::seconds(5))));
    Slot& slot = slots_[number(f[1])];
    slot.buffer = std::make_shared<Buffer>(std::move(made));
    slot.size = size;
    fill_pattern(slot.data(), size, number(f[1]));
    return Fields{};
  }
  Result<Fields> memory(const Fields& f) {
    Slot& slot = slots_[number(f[1])];
    slot.size = number(f[2]);
    STAGEWIRE_ASSIGN(slot.memory, Memory::make(slot.size));
    fill_pattern(slot.data(), slot.size, number(f[1]));
    return Fields{};
  }

  // publish KEY SLOT BYTES TENSORS READERS: in place, the slot's first bytes.
  Result<Fields> publish(const Fields& f) {
    STAGEWIRE_ASSIGN(Slot * from, slot(f[2]));
    STAGEWIRE_ASSIGN(const Payload payload, make_payload(from->data(), number(f[3]), number(f[4])));
    PutOptions options = bench_put_options();
    options.readers = static_cast<std::uint32_t>(number(f[5]));
    STAGEWIRE_ASSIGN(const Ticket ticket,
                     node_->put_in_place(bench_key(f[1]), payload, {from->buffer}, options));
    return Fields{ticket.to_text()};
  }
  // put KEY SLOT TENSORS READERS: copies; answers the ticket and the nanoseconds that put took.
  Result<Fields> put(const Fields& f) {
    STAGEWIRE_ASSIGN(Slot * from, slot(f[2]));
    STAGEWIRE_ASSIGN(const Payload payload, make_payload(from->data(), from->size, number(f[3])));
    PutOptions options = bench_put_options();
    options.readers = static_cast<std::uint32_t>(number(f[4]));
    const auto start = SteadyClock::now();
    STAGEWIRE_ASSIGN(const Ticket ticket, node_->put(bench_key(f[1]), payload, options));
    const auto took = SteadyClock::now() - start;
    return Fields{ticket.to_text(), std::to_string(std::chrono::nanoseconds(took).count())};
  }
  Result<Fields> withdraw(const Fields& f) { return Fields{node_->withdraw(bench_key(f[1])) ? "1" : "0"}; }

  Result<Fields> echo(const Fields& f) {
    std::unique_ptr<EchoServer>& server = echoes_[f[1]];
    STAGEWIRE_ASSIGN(server, EchoServer::start(f[1] == "tcp"));
    return Fields{server->address()};
  }
  // stream: serves slot 0, 1, … as bare sources 0, 1, ….
  Result<Fields> stream(const Fields&) {
    std::vector<StreamSource> sources;
    for (const auto& [index, slot] : slots_) {
      sources.resize(std::max<std::size_t>(sources.size(), index + 1));
      sources[index] = StreamSource{slot.data(), slot.size};
    }
    STAGEWIRE_ASSIGN(streams_, StreamServer::start(std::move(sources)));
    return Fields{std::to_string(streams_->port())};
  }

  // answer PREFIX COUNT: puts 4 KiB under PREFIX0, PREFIX1, … each once a claim waits for it, and answers
  // when each put was called. The pause lets both sides fall asleep as they would while nothing happens.
  Result<Fields> answer_claims(const Fields& f) {
    constexpr std::chrono::microseconds kPause{60};
    const std::uint64_t count = number(f[2]);
    std::vector<std::byte> small(4096);
    fill_pattern(small.data(), small.size(), 1);
    STAGEWIRE_ASSIGN(const Payload payload, make_payload(small.data(), small.size(), 1));
    Fields times;
    for (std::uint64_t i = 0; i < count; ++i) {
      STAGEWIRE_TRY(await_claims(waiting_before_ + 1));
      const auto until = SteadyClock::now() + kPause;
      while (SteadyClock::now() < until) {
      }
      const Key key = bench_key(f[1] + std::to_string(i));
      const auto called = SteadyClock::now();
      const Result<Ticket> ticket = node_->put(key, payload, bench_put_options());
      if (!ticket.ok()) return ticket.error();
      times.push_back(std::to_string(nanoseconds_of(called)));
    }
    return times;
  }

  // fill PREFIX COUNT BYTES: publishes COUNT small payloads that nobody will get.
  Result<Fields> fill(const Fields& f) {
    std::vector<std::byte> bytes(number(f[3]));
    STAGEWIRE_ASSIGN(const Payload payload, make_payload(bytes.data(), bytes.size(), 1));
    for (std::uint64_t i = 0; i < number(f[2]); ++i) {
      STAGEWIRE_TRY(node_->put(bench_key(f[1] + std::to_string(i)), payload, bench_put_options()));
    }
    return Fields{std::to_string(node_->stats().published)};
  }

  // cycle COUNT BYTES: puts and withdraws, one after the other; answers the nanoseconds of each.
  Result<Fields> cycle(const Fields& f) {
    std::vector<std::byte> bytes(number(f[2]));
    STAGEWIRE_ASSIGN(const Payload payload, make_payload(bytes.data(), bytes.size(), 1));
    const Key key = bench_key("cycle");
    Fields times;
    for (std::uint64_t i = 0; i < number(f[1]); ++i) {
      const auto start = SteadyClock::now();
      STAGEWIRE_TRY(node_->put(key, payload, bench_put_options()));
      if (!node_->withdraw(key))
        return Error(ErrorKind::internal, "a payload just published could not be withdrawn");
      times.push_back(std::to_string(std::chrono::nanoseconds(SteadyClock::now() - start).count()));
    }
    return times;
  }

  Result<Fields> usage(const Fields&) { return Fields{std::to_string(cpu_nanoseconds())}; }

  Result<Fields> wait_claims(const Fields& f) {
    STAGEWIRE_TRY(await_claims(number(f[1])));
    waiting_before_ = number(f[1]);
    return Fields{};
  }

  Status await_claims(std::uint64_t count) {
    const Deadline deadline = Deadline::in(std::chrono::seconds(30));
    while (node_->stats().waiting_claims < count) {
      if (deadline.passed())
        return Error(ErrorKind::deadline_exceeded, "the claims that were to wait did not come");
    }
    return {};
  }

  // check TICKET BYTES SEED: gets a payload of the other process and compares its contents.
  Result<Fields> check(const Fields& f) {
    STAGEWIRE_ASSIGN(const Ticket ticket, Ticket::parse(f[1]));
    GetOptions options(Deadline::in(std::chrono::seconds(30)));
    options.placement = Placement::view;
    STAGEWIRE_ASSIGN(const Got got, node_->get(Source::of(ticket), options));
    STAGEWIRE_TRY(check_payload(got.payload, number(f[2]), number(f[3])));
    return Fields{got.transport};
  }

  Result<Fields> end_data(const Fields&) {
    streams_.reset();
    echoes_.clear();
    return Fields{};
  }

  NodeSettings settings_;
  OptionList base_;
  std::shared_ptr<Node> node_;
  std::map<std::uint64_t, Slot> slots_;
  std::map<std::string, std::unique_ptr<EchoServer>> echoes_;
  std::unique_ptr<StreamServer> streams_;
  std::uint64_t waiting_before_ = 0;
};

Fields split(const std::string& line) {
  Fields fields;
  for (std::size_t start = 0; start <= line.size();) {
    const std::size_t stop = std::min(line.find('\t', start), line.size());
    fields.push_back(line.substr(start, stop - start));
    start = stop + 1;
  }
  return fields;
}

}  // namespace

int run_bench_peer(int cpu) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (cpu >= 0) pin_to({cpu});
  BenchPeer peer;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Result<Fields> answer = peer.handle(split(line));
    std::string text = answer.ok() ? "ok" : "error\t" + answer.error().to_string();
    if (answer.ok()) {
      for (const std::string& field : *answer) text += '\t' + field;
    }
    std::cout << text << '\n' << std::flush;
  }
  return kExitOk;
}

}  // namespace stagewire::tools
