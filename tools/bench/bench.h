// The bench: named cases, each of which measures one row of the project's figures against a baseline of the
// same run, between two processes. All of it runs on the main thread of this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <stagewire/base/result.h>

#include "bench/bench_node.h"
#include "bench/figure.h"
#include "bench/stats.h"
#include "common/cli.h"

namespace stagewire::tools {

struct BenchOptions {
  NodeSettings node;
  std::vector<std::string> cases;  ///< empty: all
  bool quick = false;              ///< few rounds and little memory: does it run, not how fast
  bool pin = true;                 ///< bind the two processes to different CPUs where there are two
  unsigned rounds = 0;             ///< interleaved pairs per figure; 0: 21, or 3 with quick
  unsigned kills = 0;              ///< of the faults case, per way; 0: 100, or 3 with quick
  double idle_seconds = 30;        ///< of the scale case
  bool json = false;
  bool check = false;     ///< exit code 1 when a figure is missed
  bool progress = false;  ///< say what is going on even where stderr is no terminal
};

/// What a case needs to know, beside the options.
struct Bench {
  const BenchOptions& options;
  Progress& progress;
  std::vector<int> cpus;

  unsigned rounds() const { return options.rounds != 0 ? options.rounds : options.quick ? 3 : 21; }
  /// Rounds whose outcome is thrown away.
  unsigned warm_up() const { return options.quick ? 1 : 3; }
  /// The KV cache that is moved, and how a row names its size; a tenth of it with quick.
  std::uint64_t kv_bytes() const;
  std::string kv_text() const { return options.quick ? "19.5 MB" : "195 MB"; }
  bool pinned() const { return options.pin && cpus.size() >= 2; }
  /// How to start a pair whose processes each have a CPU of their own.
  Pair::Options pair(OptionList base, Way way) const;
  /// The same with this process on all CPUs, for work that only it does.
  Pair::Options pair_with_all_cpus(OptionList base, Way way) const;
  /// Threads that a copy gets on all CPUs: what the library chooses by itself.
  unsigned copy_threads() const;
  void round(const char* what, unsigned number, unsigned count) const;
};

struct BenchCase {
  std::string_view name;
  std::string_view help;
  Result<std::vector<Figure>> (*run)(const Bench&);
};

/// In the order of the table.
const std::vector<BenchCase>& bench_cases();

// The cases. Each returns its figures or the error that stopped it.
Result<std::vector<Figure>> bench_view(const Bench& bench);
Result<std::vector<Figure>> bench_into(const Bench& bench);
Result<std::vector<Figure>> bench_put(const Bench& bench);
Result<std::vector<Figure>> bench_dict(const Bench& bench);
Result<std::vector<Figure>> bench_tcp(const Bench& bench);
Result<std::vector<Figure>> bench_one_way(const Bench& bench);
Result<std::vector<Figure>> bench_scale(const Bench& bench);
Result<std::vector<Figure>> bench_concurrent(const Bench& bench);
Result<std::vector<Figure>> bench_faults(const Bench& bench);

/// Runs the cases and prints the table or JSON. Returns an exit code.
int run_bench(const BenchOptions& options);
/// Prints the names of the cases and what they measure.
int list_bench_cases(bool json);

/// The machine as far as figures depend on it.
Json machine_json();

}  // namespace stagewire::tools
