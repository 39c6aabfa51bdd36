// The peer's side of a measurement: what a process started by PeerProcess does. It reads commands, one a line
// with tabs between the fields, from stdin and answers each on stdout with "ok" and fields, or "error" and a
// text. One thread, besides the node's and the bare servers'.
#pragma once

namespace stagewire::tools {

/// Serves until stdin ends. `cpu` ≥ 0 binds the process to that CPU. Returns an exit code.
int run_bench_peer(int cpu);

}  // namespace stagewire::tools
