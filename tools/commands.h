// The subcommands beside bench: what each is told on the command line, and the function that does it. Each
// function runs on the main thread, prints its result to stdout and returns an exit code (common/cli.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/cli.h"

namespace stagewire::tools {

struct KeygenOptions {
  std::string output;  ///< path of a new file with mode 0600; empty: print
  bool json = false;
};
int run_keygen(const KeygenOptions& options);

struct DoctorOptions {
  NodeSettings node;
  bool json = false;
};
/// Exit code 1 if something that the configuration needs does not work.
int run_doctor(const DoctorOptions& options);

struct ExplainOptions {
  NodeSettings node;
  std::string peer;           ///< address to connect to first; empty: none
  std::string wait = "5 s";   ///< how long connecting may take
  bool config_table = false;  ///< print the table of options instead
  bool show_config = false;   ///< print the effective configuration instead
  bool json = false;
};
/// Exit code 1 if the peer could not be reached.
int run_explain(const ExplainOptions& options);

struct DemoOptions {
  NodeSettings node;
  unsigned rounds = 25;
  bool json = false;
  bool progress = false;
};
int run_demo(const DemoOptions& options);

/// bench serve: publishes payloads of all sizes for `bench run` on another host.
struct ServeOptions {
  NodeSettings node;
  std::vector<std::string> sizes;  ///< empty: 8 B, and 4 KiB to max_size
  std::string max_size = "1 GiB";
  bool echo = false;   ///< answer bare TCP pings, on every interface
  bool json = false;   ///< where it listens and what it serves, as JSON
  double seconds = 0;  ///< then ends; 0: until interrupted
};
int run_bench_serve(const ServeOptions& options);

/// bench run: gets them.
struct RunOptions {
  NodeSettings node;
  std::string peer;
  std::vector<std::string> modes;    ///< view, into, copy, object, pages, ping
  std::vector<std::string> sizes;    ///< empty: all that the peer serves
  std::vector<unsigned> depths;      ///< gets at once
  unsigned gets = 0;                 ///< per row; 0: by size
  unsigned warm_up = 1;              ///< gets per row that don't count; the first one's bytes are checked
  std::string page_size = "64 KiB";  ///< of the mode pages
  bool json = false;
  bool progress = false;
};
int run_bench_run(const RunOptions& options);

}  // namespace stagewire::tools
