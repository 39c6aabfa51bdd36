// The cases that copy on one host: into a given destination, out of the caller's memory (put), and a dict
// against one flat tensor. The buffers are used in turn, so that both sides of a pair find theirs equally
// cold. See bench.h.
#include <array>
#include <utility>

#include "bench/bench.h"
#include "bench/data.h"

namespace stagewire::tools {

namespace {

// Odd, so that the two sides of a pair change places on the buffers from round to round.
constexpr unsigned kSlots = 3;

std::uint64_t pool_for(std::uint64_t payloads, std::uint64_t kv) {
  return payloads * (kv + (1U << 20U)) + (32U << 20U);
}

DestinationRange whole(const Memory& memory) {
  return DestinationRange{.data = memory.data(), .size = memory.size(), .kind = MemoryKind::host()};
}

std::string threads_text(unsigned threads) {
  return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

Figure copy_figure(std::string work, const Samples& ours, const Samples& base, double target,
                   unsigned threads, std::uint64_t kv) {
  Figure figure;
  figure.work = std::move(work);
  figure.measured = rate_text(static_cast<double>(kv), median(ours));
  figure.beside = "memcpy " + rate_text(static_cast<double>(kv), median(base));
  const Samples pair_ratios = ratios(base, ours);
  figure.value = median(pair_ratios);
  figure.target = Target::at_least(target);
  figure.detail.set("bytes", kv).set("threads", threads);
  figure.detail.set("stagewire", times_json(ours)).set("baseline", times_json(base));
  figure.detail.set("ratios", numbers_json(pair_ratios));
  return figure;
}

OptionList copy_options(unsigned threads, std::uint64_t publish, std::uint64_t receive) {
  return {{"copy_threads", std::to_string(threads)},
          {"publish_pool_size", std::to_string(publish)},
          {"receive_pool_size", std::to_string(receive)},
          {"view_share_percent", "100"}};
}

Result<Figure> into_with(const Bench& bench, unsigned threads) {
  const std::uint64_t kv = bench.kv_bytes();
  OptionList base = copy_options(threads, pool_for(kSlots, kv), 16U << 20U);
  const Pair::Options options = threads == 1 ? bench.pair(std::move(base), Way::same_host)
                                             : bench.pair_with_all_cpus(std::move(base), Way::same_host);
  STAGEWIRE_ASSIGN(const std::unique_ptr<Pair> pair, Pair::start(options));
  std::array<Source, kSlots> sources;
  std::array<Got, kSlots> views;  // the baseline copies the very same memory
  std::array<Memory, kSlots> destinations;
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    STAGEWIRE_TRY(pair->make_buffer(slot, kv));
    STAGEWIRE_ASSIGN(sources[slot], pair->publish("into" + std::to_string(slot), slot, kv));
    double ignored = 0;
    STAGEWIRE_ASSIGN(views[slot], pair->get(sources[slot], Placement::view, ignored));
    if (!views[slot].view)
      return Error(ErrorKind::internal, "no view was given: " + views[slot].placement_note);
    STAGEWIRE_ASSIGN(destinations[slot], Memory::make(kv));
  }
  MemcpyTeam team(threads);
  Samples ours;
  Samples memcpys;
  unsigned turn = 0;
  const unsigned rounds = bench.warm_up() + bench.rounds();
  for (unsigned round = 0; round < rounds; ++round) {
    bench.round("into", round, rounds);
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned slot = turn++ % kSlots;
      double seconds = 0;
      if ((round + half) % 2 == 0) {
        STAGEWIRE_TRY(pair->get(sources[slot], Placement::into, seconds, whole(destinations[slot])));
        if (round >= bench.warm_up()) ours.push_back(seconds);
      } else {
        const auto* from = static_cast<const std::byte*>(views[slot].payload.tensors().front().data);
        seconds = seconds_of([&] { team.copy(destinations[slot].data(), from, kv); });
        if (round >= bench.warm_up()) memcpys.push_back(seconds);
      }
    }
  }
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    fill_pattern(destinations[slot].data(), kv, 99);
    double ignored = 0;
    STAGEWIRE_ASSIGN(const Got got,
                     pair->get(sources[slot], Placement::into, ignored, whole(destinations[slot])));
    STAGEWIRE_TRY(check_payload(got.payload, kv, slot));
  }
  return copy_figure("shm into place, " + bench.kv_text() + ", " + threads_text(threads), ours, memcpys, 0.95,
                     threads, kv);
}

Result<Figure> put_with(const Bench& bench, unsigned threads) {
  const std::uint64_t kv = bench.kv_bytes();
  // Room for what is published, for the baseline's destinations, and for one more of each.
  OptionList base = copy_options(threads, pool_for(kSlots + 3, kv), 16U << 20U);
  const Pair::Options options = threads == 1 ? bench.pair(std::move(base), Way::same_host)
                                             : bench.pair_with_all_cpus(std::move(base), Way::same_host);
  STAGEWIRE_ASSIGN(const std::unique_ptr<Pair> pair, Pair::start(options));
  Node& node = pair->node();
  std::array<Memory, kSlots> memories;
  std::array<Payload, kSlots> payloads;
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    STAGEWIRE_ASSIGN(memories[slot], Memory::make(kv));
    fill_pattern(memories[slot].data(), kv, slot);
    STAGEWIRE_ASSIGN(payloads[slot], make_payload(memories[slot].data(), kv, kKvTensors));
  }
  MemcpyTeam team(threads);
  Samples ours;
  Samples memcpys;
  unsigned turn = 0;
  std::array<Buffer, kSlots> buffers;  // the place of each slot's latest copy, whichever side made it
  std::array<bool, kSlots> published{};
  const unsigned rounds = bench.warm_up() + bench.rounds();
  for (unsigned round = 0; round < rounds; ++round) {
    bench.round("put", round, rounds);
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned slot = turn++ % kSlots;
      const Key key = bench_key("put" + std::to_string(slot));
      // Made free first, so that both find the oldest memory to write to.
      if (std::exchange(published[slot], false)) node.withdraw(key);
      buffers[slot].release();
      if ((round + half) % 2 == 0) {
        const auto start = std::chrono::steady_clock::now();
        const Result<Ticket> ticket = node.put(key, payloads[slot], bench_put_options());
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (!ticket.ok()) return ticket.error();
        published[slot] = true;
        if (round >= bench.warm_up()) ours.push_back(seconds);
      } else {
        STAGEWIRE_ASSIGN(buffers[slot], node.publish_pool()->allocate(
                                            kv, "baseline", Deadline::in(std::chrono::seconds(10))));
        const double seconds =
            seconds_of([&] { team.copy(buffers[slot].data(), memories[slot].data(), kv); });
        if (round >= bench.warm_up()) memcpys.push_back(seconds);
      }
    }
  }
  STAGEWIRE_ASSIGN(const Ticket ticket, node.put(bench_key("checked"), payloads[1], bench_put_options()));
  STAGEWIRE_TRY(pair->peer().call({"check", ticket.to_text(), std::to_string(kv), "1"}));
  return copy_figure("put of 56 tensors, " + bench.kv_text() + ", " + threads_text(threads), ours, memcpys,
                     0.9, threads, kv);
}

template <typename One>
Result<std::vector<Figure>> with_thread_counts(const Bench& bench, const One& one) {
  std::vector<Figure> figures;
  STAGEWIRE_ASSIGN(Figure single, one(bench, 1U));
  figures.push_back(std::move(single));
  if (bench.copy_threads() > 1) {
    STAGEWIRE_ASSIGN(Figure several, one(bench, bench.copy_threads()));
    figures.push_back(std::move(several));
  }
  return figures;
}

}  // namespace

Result<std::vector<Figure>> bench_into(const Bench& bench) {
  return with_thread_counts(bench, into_with);
}

Result<std::vector<Figure>> bench_put(const Bench& bench) {
  return with_thread_counts(bench, put_with);
}

Result<std::vector<Figure>> bench_dict(const Bench& bench) {
  const std::uint64_t kv = bench.kv_bytes();
  STAGEWIRE_ASSIGN(
      const std::unique_ptr<Pair> pair,
      Pair::start(bench.pair(copy_options(0, pool_for(kSlots + 2, kv), 16U << 20U), Way::same_host)));
  std::array<Memory, kSlots> destinations;
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    STAGEWIRE_TRY(pair->peer().call({"memory", std::to_string(slot), std::to_string(kv)}));
    STAGEWIRE_ASSIGN(destinations[slot], Memory::make(kv));
  }
  Samples dicts;
  Samples flats;
  unsigned turn = 0;
  const unsigned rounds = bench.warm_up() + bench.rounds();
  for (unsigned round = 0; round < rounds; ++round) {
    bench.round("dict", round, rounds);
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned slot = turn++ % kSlots;
      const bool dict = (round + half) % 2 == 0;
      STAGEWIRE_ASSIGN(const Fields put, pair->peer().call({"put", "dict", std::to_string(slot),
                                                            dict ? std::to_string(kKvTensors) : "1", "1"}));
      STAGEWIRE_ASSIGN(const Ticket ticket, Ticket::parse(put.at(0)));
      double seconds = 0;
      STAGEWIRE_ASSIGN(const Got got,
                       pair->get(Source::of(ticket), Placement::into, seconds, whole(destinations[slot])));
      if (round < bench.warm_up()) {
        STAGEWIRE_TRY(check_payload(got.payload, kv, slot));
        continue;
      }
      (dict ? dicts : flats).push_back(seconds + std::stod(put.at(1)) * 1e-9);
    }
  }
  Figure figure;
  figure.work = "put + get, dict of 56 tensors, " + bench.kv_text();
  figure.measured = time_text(median(dicts));
  figure.beside = "one flat tensor " + time_text(median(flats));
  const Samples pair_ratios = ratios(flats, dicts);
  figure.value = median(pair_ratios);
  figure.target = Target::at_least(0.95);
  figure.detail.set("bytes", kv).set("stagewire", times_json(dicts)).set("baseline", times_json(flats));
  figure.detail.set("ratios", numbers_json(pair_ratios));
  return std::vector<Figure>{figure};
}

}  // namespace stagewire::tools
