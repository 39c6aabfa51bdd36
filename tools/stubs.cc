#include "commands.h"
namespace stagewire::tools {
  return 0;
}
int run_demo(const DemoOptions&) {
  return 0;
}
int run_bench_serve(const ServeOptions&) {
  return 0;
}
int run_bench_run(const RunOptions&) {
  return 0;
}
}  // namespace stagewire::tools
