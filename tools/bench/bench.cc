// See bench.h.
#include "bench/bench.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sys/utsname.h>

#include "bench/data.h"
#include "common/version.h"

namespace stagewire::tools {

namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

const BenchCase* find_case(const std::string& name) {
  const auto& cases = bench_cases();
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const BenchCase& c) { return c.name == name; });
  return found == cases.end() ? nullptr : &*found;
}

double load_average() {
  std::ifstream file("/proc/loadavg");
  double load = 0;
  file >> load;
  return load;
}

}  // namespace

Pair::Options Bench::pair(OptionList base, Way way) const {
  Pair::Options pair{
      .settings = options.node, .base = std::move(base), .way = way, .peer_cpu = {}, .own_cpus = {}};
  if (pinned()) {
    pair.peer_cpu = cpus[0];
    pair.own_cpus = {cpus[1]};
  }
  return pair;
}

Pair::Options Bench::pair_with_all_cpus(OptionList base, Way way) const {
  Pair::Options pair{
      .settings = options.node, .base = std::move(base), .way = way, .peer_cpu = {}, .own_cpus = {}};
  if (pinned()) {
    pair.peer_cpu = cpus[0];
    pair.own_cpus = cpus;
  }
  return pair;
}

std::uint64_t Bench::kv_bytes() const {
  return options.quick ? kKvBytes / 10 : kKvBytes;
}

unsigned Bench::copy_threads() const {
  return static_cast<unsigned>(std::min<std::size_t>(4, cpus.size()));
}

void Bench::round(const char* what, unsigned number, unsigned count) const {
  progress.say(std::string(what) + ": round " + std::to_string(number + 1) + " of " + std::to_string(count));
}

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> kCases{
      {"view", "get as a view, 1 MiB to 1 GiB, against a Unix-socket ping-pong", bench_view},
      {"into", "get of 195 MB into a given destination on one host, against memcpy", bench_into},
      {"put", "copying put of a dict of 56 tensors, 195 MB, against memcpy", bench_put},
      {"dict", "put and get of a dict of 56 tensors against one flat tensor", bench_dict},
      {"tcp", "get of 195 MB over TCP on loopback, against bare sockets", bench_tcp},
      {"oneway", "4 KiB from put to a waiting get, over Unix sockets and TCP", bench_one_way},
      {"scale", "cost of an operation beside 10,000 keys and 256 waiting claims; idle CPU", bench_scale},
      {"concurrent", "32 gets of 16 MiB at once over TCP, against one big get", bench_concurrent},
      {"faults", "time from a peer's SIGKILL to the typed error", bench_faults},
  };
  return kCases;
}

int list_bench_cases(bool json) {
  if (json) {
    Json list = Json::list();
    for (const BenchCase& c : bench_cases())
      list.push(Json::object().set("case", c.name).set("help", c.help));
    std::printf("%s\n", list.text().c_str());
    return kExitOk;
  }
  for (const BenchCase& c : bench_cases())
    std::printf("%-12s%s\n", std::string(c.name).c_str(), std::string(c.help).c_str());
  return kExitOk;
}

Json machine_json() {
  utsname system{};
  static_cast<void>(::uname(&system));
  Json json = Json::object();
  json.set("cpu", cpu_model());
  json.set("usable_cpus", static_cast<std::uint64_t>(usable_cpu_list().size()));
  json.set("kernel", std::string(system.sysname) + " " + system.release);
  json.set("load_average", load_average());
  return json;
}

int run_bench(const BenchOptions& options) {
  std::vector<const BenchCase*> chosen;
  for (const std::string& name : options.cases) {
    const BenchCase* known = find_case(name);
    if (known == nullptr) {
      return report_error(Error(ErrorKind::invalid_argument,
                                "there is no case '" + name + "'; stagewire bench --list names them"));
    }
    chosen.push_back(known);
  }
  if (chosen.empty()) {
    for (const BenchCase& c : bench_cases()) chosen.push_back(&c);
  }
  // Wrong options are found before the first process is started.
  if (const Result<NodeConfig> config = node_config(options.node); !config.ok())
    return report_error(config.error());

  Progress progress(options.progress);
  const Bench bench{.options = options, .progress = progress, .cpus = usable_cpu_list()};
  std::vector<Figure> figures;
  Json failures = Json::list();
  bool broke = false;
  const double load = load_average();
  for (const BenchCase* c : chosen) {
    progress.say(std::string(c->name) + ": starting");
    Result<std::vector<Figure>> result = c->run(bench);
    progress.say("");
    pin_to(bench.cpus);
    if (!result.ok()) {
      broke = true;
      std::fprintf(stderr, "stagewire: bench %s: %s\n", std::string(c->name).c_str(),
                   result.error().to_string().c_str());
      failures.push(Json::object().set("case", c->name).set("error", result.error().to_string()));
      continue;
    }
    for (Figure& figure : *result) {
      figure.case_name = c->name;
      figures.push_back(std::move(figure));
    }
  }
  const auto missed = std::count_if(figures.begin(), figures.end(), [](const Figure& f) { return !f.met(); });
  if (options.json) {
    Json list = Json::list();
    for (const Figure& figure : figures) list.push(figure.json());
    Json json = Json::object();
    json.set("version", version_number()).set("machine", machine_json()).set("quick", options.quick);
    json.set("pinned", bench.pinned()).set("rounds", bench.rounds()).set("missed", std::int64_t{missed});
    json.set("figures", std::move(list)).set("failures", std::move(failures));
    std::printf("%s\n", json.text().c_str());
  } else {
    std::printf("%s", figure_table(figures).c_str());
    std::printf("\n%s, %zu CPUs, %s\nmedians of %u interleaved pairs; 1 MB = 10^6 bytes\n",
                cpu_model().c_str(), bench.cpus.size(),
                bench.pinned() ? "each process bound to its own" : "processes not bound", bench.rounds());
    if (options.quick) std::printf("--quick: too few rounds for the figures to mean anything\n");
    if (load > static_cast<double>(bench.cpus.size()) / 2)
      std::printf("the machine was busy (load %.1f): expect worse and scattered figures\n", load);
  }
  if (broke) return kExitRuntime;
  return options.check && missed != 0 ? kExitFailed : kExitOk;
}

}  // namespace stagewire::tools
