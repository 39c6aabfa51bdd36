# Shell functions for what runs inside of a guest: the Soft-RoCE device, and meeting the other guest. To be sourced by
# bash. NODE is this guest's number, NODES how many there are, OUT the folder they share with the host.
#
# eth0 (10.9.0.NODE) carries what is tested, and rxe0 with it. eth1 (10.9.1.NODE, only with two guests) is the tests'
# own: what they do to eth0 does not cut them off.

rdma_device=rxe0
gid_index=1  # RoCE v2 over IPv4; 0 is link-local IPv6

# The netdev's MTU decides the RDMA port's (4096 needs a few bytes more), and its state the port's: up before rxe_up.
network_up() {
  ip link set eth0 mtu 4200 up && ip addr replace "10.9.0.$NODE/24" dev eth0
}

rxe_up() {
  [[ -d /sys/class/infiniband/$rdma_device ]] || rdma link add "$rdma_device" type rxe netdev eth0 || return
  wait_for "the port of $rdma_device" 20 grep -q ACTIVE "/sys/class/infiniband/$rdma_device/ports/1/state" &&
    wait_for "the RoCE v2 address of $rdma_device" 20 gid_is_there
}

# The kernel fills the table of addresses by and by, and an empty entry can't be read at all.
gid_is_there() {
  local gid
  read -r gid <"/sys/class/infiniband/$rdma_device/ports/1/gids/$gid_index" 2>/dev/null
  [[ -n $gid && $gid != 0000:0000:0000:0000:0000:0000:0000:0000 ]]
}

# wait_for WHAT SECONDS COMMAND...: polls until the command succeeds.
wait_for() {
  local what=$1 until=$((SECONDS + $2))
  shift 2
  until "$@" 2>/dev/null; do
    ((SECONDS < until)) || { echo "rxe guest $NODE: $what did not come"; return 1; }
    sleep 0.1
  done
}

# barrier NAME [SECONDS]: returns when all guests have called it with this name.
barrier() {
  local node
  : >"$OUT/.guests/barrier.$1.$NODE"
  for ((node = 1; node <= NODES; node++)); do
    wait_for "guest $node at '$1'" "${2:-60}" test -e "$OUT/.guests/barrier.$1.$node" || return
  done
}

# wait_for_port HOST PORT [SECONDS]
wait_for_port() { wait_for "port $2 of $1" "${3:-30}" bash -c ": </dev/tcp/$1/$2"; }
