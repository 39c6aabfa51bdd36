// The stagewire command: its options and help, and nothing else. Each subcommand fills a plain struct and
// calls the function that does the work. The only file that knows CLI11.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "bench/bench.h"
#include "bench/peer.h"
#include "commands.h"
#include "common/json.h"
#include "common/version.h"

namespace {

using namespace stagewire::tools;

void print_version(bool json) {
  if (json) {
    Json facts = Json::object();
    for (const auto& [name, value] : build_facts()) facts.set(name, value);
    std::printf("%s\n", facts.text().c_str());
    return;
  }
  std::printf("stagewire %s\n", version_number().c_str());
  for (const auto& [name, value] : build_facts()) {
    if (name != "version") std::printf("  %-12s%s\n", name.c_str(), value.c_str());
  }
}

std::string node_option_names() {
  std::size_t width = 0;
  for (const stagewire::ConfigOption& option : stagewire::config_options())
    width = std::max(width, option.name.size() + 2);
  std::string text;
  for (const stagewire::ConfigOption& option : stagewire::config_options()) {
    text += "  " + padded(option.name, width) + option.doc;
    if (!option.default_text.empty() && !option.secret) text += " [" + option.default_text + "]";
    text += '\n';
  }
  return text;
}

void add_node_options(CLI::App* command, NodeSettings& node) {
  command->add_option("--config", node.config_file, "YAML file with the node's options")->type_name("FILE");
  command
      ->add_option("--set", node.set,
                   "one of the node's options, over file and environment; may be given again "
                   "(explain --help lists them)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_json(CLI::App* command, bool& json) {
  command->add_flag("--json", json, "print JSON for programs instead of text for people");
}

void add_progress(CLI::App* command, bool& progress) {
  command->add_flag("--progress", progress, "say on stderr what is going on, even where it is no terminal");
}

CLI::Validator not_empty() {
  return {[](const std::string& text) { return text.empty() ? "it may not be empty" : std::string(); }, ""};
}

using Action = std::function<int()>;

void add_keygen(CLI::App& app, Action& action) {
  auto options = std::make_shared<KeygenOptions>();
  CLI::App* command = app.add_subcommand("keygen", "Make a new shared secret");
  command
      ->add_option("-o,--output", options->output, "write it to this new file, readable by its owner alone")
      ->type_name("FILE");
  add_json(command, options->json);
  command->footer(
      "Every node of a pipeline gets the same secret: --set secret_file=FILE, or secret_file in the "
      "configuration.");
  command->callback([options, &action] { action = [options] { return run_keygen(*options); }; });
}

void add_doctor(CLI::App& app, Action& action) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command =
      app.add_subcommand("doctor", "Say what works on this machine, what does not, and how to mend it");
  add_node_options(command, options->node);
  add_json(command, options->json);
  command->footer("Exit code 1 if something that a node needs does not work.");
  command->callback([options, &action] { action = [options] { return run_doctor(*options); }; });
}

void add_explain(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Show what a node makes of its configuration, and how it reaches a peer");
  add_node_options(command, options->node);
  command->add_option("--peer", options->peer, "connect to this address first, and show the route and why")
      ->type_name("ADDRESS")
      ->check(not_empty());
  command->add_option("--wait", options->wait, "how long connecting may take")
      ->type_name("DURATION")
      ->capture_default_str();
  command->add_flag("--config-table", options->config_table, "print the table of all options, as Markdown");
  command->add_flag("--show-config", options->show_config, "print the effective configuration, as YAML");
  add_json(command, options->json);
  command->footer(
      "Exit code 1 if the peer could not be reached.\n\nOptions of a node, for --set, the "
      "configuration file and the environment (STAGEWIRE_NAME):\n" +
      node_option_names());
  command->callback([options, &action] { action = [options] { return run_explain(*options); }; });
}

void add_demo(CLI::App& app, Action& action) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* command =
      app.add_subcommand("demo", "Move a KV cache of 195 MB between two processes, over every route");
  add_node_options(command, options->node);
  command->add_option("--rounds", options->rounds, "measurements of each route")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  add_json(command, options->json);
  add_progress(command, options->progress);
  command->callback([options, &action] { action = [options] { return run_demo(*options); }; });
}

void add_bench_serve(CLI::App& bench, Action& action) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      bench.add_subcommand("serve", "Publish payloads of all sizes for `bench run` on another host");
  add_node_options(command, options->node);
  command->add_option("--max-size", options->max_size, "the largest payload")
      ->type_name("SIZE")
      ->capture_default_str();
  command
      ->add_option(
          "--size", options->sizes,
          "serve these sizes alone, multiples of 8 bytes up to 1GiB; with commas (default: 8B, then 4KiB "
          "to --max-size in steps of four, and 195MB)")
      ->type_name("SIZE,...")
      ->delimiter(',');
  command->add_flag("--echo", options->echo,
                    "answer bare TCP pings for `bench run --mode ping`, from anybody, on all interfaces");
  command->add_option("--seconds", options->seconds, "end after so many seconds; 0: when interrupted")
      ->type_name("S")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  add_json(command, options->json);
  command->footer(
      "Prints the addresses it listens on. Give both sides the same secret and this one an address "
      "that the other can reach:\n  stagewire bench serve --set listen=0.0.0.0:7777 --set "
      "secret_file=FILE");
  command->callback([options, &action] { action = [options] { return run_bench_serve(*options); }; });
}

void add_bench_run(CLI::App& bench, Action& action) {
  auto options = std::make_shared<RunOptions>();
  options->modes = {"view", "into", "copy", "object"};
  options->depths = {1};
  CLI::App* command = bench.add_subcommand("run", "Get the payloads of a `bench serve` and measure it");
  add_node_options(command, options->node);
  command->add_option("--peer", options->peer, "where `bench serve` listens")
      ->type_name("ADDRESS")
      ->check(not_empty())
      ->required();
  command
      ->add_option(
          "--mode", options->modes,
          "view (read in place where the route can), into (a given destination), copy (the receive pool), "
          "object (a dict of 56 tensors), pages (a destination of scattered pages), inline (sizes that come "
          "in the grant), ping (no get at all: a bare TCP ping-pong of 256 bytes); with commas")
      ->type_name("MODE,...")
      ->delimiter(',')
      ->check(CLI::IsMember({"view", "into", "copy", "object", "pages", "inline", "ping"}))
      ->capture_default_str();
  command->add_option("--size", options->sizes, "sizes, with commas; default: all that the peer serves")
      ->type_name("SIZE,...")
      ->delimiter(',');
  command->add_option("--page-size", options->page_size, "bytes of a page in the mode pages")
      ->type_name("SIZE")
      ->capture_default_str();
  command->add_option("--depth", options->depths, "gets at once, 1 to 32; with commas")
      ->type_name("N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  command->add_option("--gets", options->gets, "gets (or pings) per row; 0: chosen by size")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--warm-up", options->warm_up,
                   "gets per row that don't count; every byte of the first is checked")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  add_json(command, options->json);
  add_progress(command, options->progress);
  command->footer(
      "Each row has the route that was used, median and 99th percentile of one get, and the throughput of "
      "all "
      "together; --json has more percentiles. Payloads are claimed by ticket.");
  command->callback([options, &action] { action = [options] { return run_bench_run(*options); }; });
}

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  auto list = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("bench", "Measure stagewire against memcpy and bare sockets on this machine");
  command->require_subcommand(0, 1);
  add_node_options(command, options->node);
  command->add_flag("--list", *list, "name the cases and end");
  command->add_option("--case", options->cases, "run this case alone; may be given again, or with commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME");
  command->add_flag("--quick", options->quick, "few rounds: shows that it runs, not how fast");
  command->add_flag_callback(
      "--no-pin", [options] { options->pin = false; }, "do not bind the two processes to different CPUs");
  command->add_option("--rounds", options->rounds, "interleaved pairs per figure; 0: 21, or 3 with --quick")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0, 10'000));
  command
      ->add_option("--kills", options->kills, "kills per way in the case faults; 0: 100, or 3 with --quick")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0, 10'000));
  command->add_option("--idle-seconds", options->idle_seconds, "how long the case scale watches an idle node")
      ->type_name("S")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  command->add_flag("--check", options->check, "exit code 1 if a figure misses its target");
  add_json(command, options->json);
  add_progress(command, options->progress);
  command->callback([options, list, &action, command] {
    if (!command->get_subcommands().empty()) return;
    action = [options, list] { return *list ? list_bench_cases(options->json) : run_bench(*options); };
  });
  CLI::App* faults =
      command->add_subcommand("faults", "The case faults alone: kills peers, times the typed error");
  faults->add_option("--kills", options->kills, "kills per way; 0: 100")
      ->type_name("N")
      ->check(CLI::Range(0, 10'000));
  faults->add_flag("--check", options->check, "exit code 1 if a figure misses its target");
  add_json(faults, options->json);
  add_progress(faults, options->progress);
  faults->callback([options, &action] {
    options->cases = {"faults"};
    action = [options] { return run_bench(*options); };
  });
  add_bench_serve(*command, action);
  add_bench_run(*command, action);
  command->footer(
      "Cases: every row of docs/benchmarks.md (--list). Exit codes: 0 measured, 1 a figure was missed "
      "(with --check), 2 wrong usage, 3 a case broke off.");
}

void add_bench_peer(CLI::App& app, Action& action) {
  auto cpu = std::make_shared<int>(-1);
  CLI::App* command = app.add_subcommand("bench-peer", "The other process of a measurement");
  command->group("");  // started by bench and demo alone: not in the help
  command->add_option("--cpu", *cpu, "bind to this CPU")->type_name("N");
  command->callback([cpu, &action] { action = [cpu] { return run_bench_peer(*cpu); }; });
}

int run(int argc, char** argv) {
  CLI::App app("Carries typed tensors between the stages of an inference pipeline.", "stagewire");
  bool version = false;
  bool version_as_json = false;
  app.add_flag("--version", version, "print the version and what this binary was built from and with");
  app.add_flag("--json", version_as_json, "with --version: as JSON");
  app.footer(
      "Exit codes: 0 all is well, 1 what was checked is not, 2 wrong usage or configuration, 3 an error "
      "while running.\nEvery subcommand has --help.");
  app.require_subcommand(0, 1);
  Action action;
  add_demo(app, action);
  add_bench(app, action);
  add_doctor(app, action);
  add_explain(app, action);
  add_keygen(app, action);
  add_bench_peer(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (version) {
    print_version(version_as_json);
    return kExitOk;
  }
  if (!action) {
    std::fprintf(stderr, "%s", app.help().c_str());
    return kExitUsage;
  }
  return action();
}

}  // namespace

int main(int argc, char** argv) {
  // A peer that is killed must not take this process with it: writes to its pipe report EPIPE instead.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stagewire: %s\n", error.what());
    return kExitRuntime;
  }
}
